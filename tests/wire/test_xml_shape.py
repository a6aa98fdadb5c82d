"""Which documents are remembered as known, so that reading them leaves nothing new behind."""

from __future__ import annotations

from itertools import product

import pytest
from lxml import etree

from gridpost.wire.xml_shape import MAX_DOCUMENT, KnownShapes, in_own_thread, shape_of


def is_known(first: bytes, then: bytes) -> bool:
    known: KnownShapes[bool] = KnownShapes()
    known.learn(shape_of(first), True)
    return known.get(shape_of(then)) is True


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"<a>x</a>", b"<a>another text</a>"),
        (b"<a>x</a>", b"<a>&lt;&#13;&#xA0;</a>"),
        (
            b"<?xml version='1.0'?>\n<a b='c'>\n <d>x</d>\n</a>",
            b"<?xml version='1.0'?>\n<a b='c'>\n <d>y</d>\n</a>",
        ),
        (b"<a y='1'/>", b"<a y='2'/>"),
        (b"<a y='1' z=\"2\">x</a>", b'<a y="it\'s" z=\'"3" &lt;\'>y</a>'),
    ],
)
def test_documents_that_differ_in_texts_and_values_alone_have_one_shape(
    first: bytes, then: bytes
) -> None:
    assert is_known(first, then)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"<a>x</a>", b"<b>x</b>"),
        (b"<a>x</a>", b"<a>x</b>"),
        (b"<a>x</a>", b"<a y='z'>x</a>"),
        (b"<a>x</a>", b"<a>x<!-- --></a>"),
        (b"<a>x</a>", b"<a>x<?y?></a>"),
        (b"<a>x</a>", b"<a>&y;</a>"),
        (b"<a>x</a>", b"<a>x & y;</a>"),
        (b"<a><b/></a>", b"<a>                    <b/></a>"),
        (b"<a>x</a>", b"<a>                    </a>"),
        (b"<a y='1'/>", b"<a z='1'/>"),
        (b"<a y='1'/>", b"<a y='1' z='1'/>"),
        (b"<a y='1'/>", b"<a y='1>' z='1'/>"),
        (b"<a y='1' z='2'/>", b"<a y='1\"' w='\" z='2'/>"),
        (b"<a xmlns='1'/>", b"<a xmlns='2'/>"),
        (b"<b:a xmlns:b='1'/>", b"<b:a xmlns:b='2'/>"),
        (b"<a xml:id='1'/>", b"<a xml:id='2'/>"),
    ],
)
def test_a_document_with_anything_new_besides_text_is_not_known(first: bytes, then: bytes) -> None:
    assert not is_known(first, then)


@pytest.mark.parametrize(
    "document",
    [
        b"<a x='>' y='z'>t</a>",
        b'<a x=\'"\' y=">" z="u">t</a>',
        b"<a><!-- > --><b/></a>",
        b"<a><?x > ?><b/></a>",
        b"<a><![CDATA[ > ]]></a>",
        b"<a>&x;</a>",
        b"<a>" + b"x" * MAX_DOCUMENT + b"</a>",
    ],
)
def test_a_document_in_which_names_could_hide_is_never_learnt(document: bytes) -> None:
    assert not is_known(document, document)


def test_names_are_the_same_in_all_documents_of_a_shape() -> None:
    names_of: dict[bytes, set[str]] = {}
    compared = 0
    for length in range(8):
        for pieces in product((b" y", b"z", b"=", b"'", b'"', b">"), repeat=length):
            document = b"<a" + b"".join(pieces) + b"/>"
            try:
                names = set(etree.fromstring(document).attrib)
            except etree.XMLSyntaxError:
                continue
            shape = shape_of(document)
            known: KnownShapes[bool] = KnownShapes()
            known.learn(shape, True)
            if known.get(shape):
                compared += shape in names_of
                assert names_of.setdefault(shape, names) == names
    assert compared > 100


def test_what_is_learnt_is_limited_and_never_forgotten() -> None:
    known: KnownShapes[int] = KnownShapes(max_total=10)
    known.learn(b"<a></a>", 1)
    known.learn(b"<a></a>", 2)
    known.learn(b"<b></b>", 3)
    assert known.get(b"<a></a>") == 1
    assert known.get(b"<b></b>") is None


def test_what_goes_wrong_in_another_thread_is_raised_here() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_own_thread(fail)
    assert in_own_thread(lambda: 7) == 7
