"""EIC lists: good codes come in, others are named."""

from __future__ import annotations

import pytest

from gridpost.core.refusal import Refusal
from gridpost.pipeline.lake import Lake
from gridpost.pipeline.parties import import_parties, is_eic


@pytest.mark.parametrize("code", ["10YBE----------2", "10YFR-RTE------C", "10X1001A1001A450"])
def test_codes_in_use_have_their_check_character(code):
    assert is_eic(code)
    assert not is_eic(code[:-1] + ("A" if code[-1] != "A" else "B"))
    assert not is_eic(code.lower())
    assert not is_eic(code[:-1])


def test_a_list_becomes_the_table_of_parties(tmp_path):
    lake = Lake.open(tmp_path / "lake", create=True)
    file = tmp_path / "list.csv"
    file.write_text(
        "\ufeffEicCode;EicLongName;EicStatus;type;validFrom\n"
        "10YBE----------2;Belgium;Active;Y;2010-01-01\n"
        "10YBE----------3;Wrong;Active;Y;\n"
        "10YFR-RTE------C;France;Active;Y;\n",
        encoding="utf-8",
    )
    done = import_parties(lake, file)
    assert done == {"parties": 2, "refused": ["10YBE----------3"], "refused_lines": 1}
    rows = lake.table("silver", "parties").read().to_pylist()
    assert [(r["code"], r["name"]) for r in rows] == [
        ("10YBE----------2", "Belgium"),
        ("10YFR-RTE------C", "France"),
    ]
    assert str(rows[0]["valid_from"]) == "2010-01-01"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(Refusal, match="no EIC codes"):
        import_parties(lake, file)
