#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to the point where `make test` and `make demo` run.
# This file alone decides which system packages Gridpost needs and when the virtual environment is stale.
#
#   GRIDPOST_PYTHON               interpreter to use instead of the first suitable one
#   GRIDPOST_DISTRIBUTION_PYTHON  where the distribution's own is, which is tried first (/usr/bin/python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# ---------------------------------------------------------------- Python

suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# Prints the first interpreter that is new enough and not too new; fails when there is none. The one that
# .venv was made with comes first, so that a different PATH does not mean another environment. Then the
# distribution's own: one that somebody compiled beside it is often built without profile-guided optimisation and
# runs plain Python at two thirds of the speed.
find_python() {
    local candidate own=${GRIDPOST_DISTRIBUTION_PYTHON-/usr/bin/python3}
    if [ -z "${GRIDPOST_PYTHON:-}" ] && [ -x .venv/bin/python ] && suitable .venv/bin/python; then
        .venv/bin/python -c 'import sys; print(sys._base_executable)'
        return
    fi
    for candidate in ${GRIDPOST_PYTHON:-$own python3 python3.13 python3.12 python3.11}; do
        if have "$candidate" && suitable "$candidate"; then command -v "$candidate"; return; fi
    done
    return 1
}

# Which Python to ask apt for: the distribution's own where it fits (Debian 12 and 13, Ubuntu 24.04),
# a versioned one beside it where the default is older (Ubuntu 22.04).
distribution_python() {
    local version
    for version in 3.13 3.12 3.11; do
        if apt-cache show "python$version-venv" >/dev/null 2>&1; then echo "python$version"; return; fi
    done
    die "this distribution has no Python 3.11, 3.12 or 3.13; install one and set GRIDPOST_PYTHON"
}

# Its command is in a folder that is not on everybody's PATH.
have_rabbitmq() { have rabbitmq-server || [ -x /usr/sbin/rabbitmq-server ]; }

# Debian keeps one folder per major version, none of them on the PATH.
have_postgresql() { have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; }

have_java() { have javac && [ "$(javac --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')" -ge 17 ]; }

python_has() { "$python" -c "$1" >/dev/null 2>&1; }
python_headers='import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))'

# ---------------------------------------------------------------- system packages

missing=()   # Debian packages
reasons=()   # what each of them is missing for, in words

# need WHAT PACKAGES CHECK...   the check is a command; it fails when the thing is missing
need() {
    local what=$1 packages=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        reasons+=("$what")
        # shellcheck disable=SC2206  # one string, several packages
        missing+=($packages)
    fi
}

# The table: what is needed, the Debian packages that bring it, how to find out. A new need is a new line.
look_around() {
    missing=() reasons=()
    local name=python3
    if python=$(find_python); then
        name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        need "Python's venv module"       "$name-venv"        python_has 'import ensurepip, venv'
        need "Python headers"             "$name-dev"         python_has "$python_headers"
    elif [ -n "${GRIDPOST_PYTHON:-}" ]; then
        die "GRIDPOST_PYTHON=$GRIDPOST_PYTHON is not a Python 3.11, 3.12 or 3.13"
    else
        have apt-cache && name=$(distribution_python)
        need "Python 3.11 to 3.13"        "$name $name-venv $name-dev"  false
    fi
    # qpid-proton is published as source only: it is compiled once, when the environment is made.
    need "C compiler"                     "gcc libc6-dev"     have cc
    need "pkg-config"                     "pkg-config"        have pkg-config
    need "OpenSSL headers"                "libssl-dev"        pkg-config --exists openssl
    # Used by tests: a software PKCS#11 token, the order of system calls, an independent XML reader.
    need "SoftHSM (softhsm2-util)"        "softhsm2"          have softhsm2-util
    need "strace"                         "strace"            have strace
    need "xmllint"                        "libxml2-utils"     have xmllint
    # The server behind capacity and bus, a store of broker edges, and the yardstick of `gridpost bench broker`.
    need "RabbitMQ"                       "rabbitmq-server"   have_rabbitmq
    need "PostgreSQL's server programs"   "postgresql"        have_postgresql
    # Spark runs on Java; tests compile independent clients and fetch their libraries with Maven.
    need "Java 17 or newer, with javac"   "default-jdk-headless" have_java
    need "Maven"                          "maven"             have mvn
    need "JAX-WS (wsimport)"              "jaxws"             have wsimport
    # The console is tested in a real browser.
    need "Chromium"                       "chromium"          have chromium
    need "git"                            "git"               have git
}

install_missing() {
    local install="apt-get install -y --no-install-recommends ${missing[*]}" as_root=()
    say "missing: $(printf '%s; ' "${reasons[@]}" | sed 's/; $//')"
    have apt-get || die "no apt-get here; install what is missing with this system's package manager"
    if [ "$(id -u)" -ne 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then
            as_root=(sudo -n)
        else
            die "may not install packages here; run this once, then try again:
    sudo apt-get update && sudo $install"
        fi
    fi
    say "installing with apt: ${missing[*]}"
    # A fresh image has no package lists; a list that cannot be refreshed may still be good enough.
    ${as_root[@]+"${as_root[@]}"} apt-get -qq update </dev/null || say "could not refresh the package lists"
    # shellcheck disable=SC2086  # the words of one command
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive $install -qq </dev/null >&2
}

# ---------------------------------------------------------------- the environment

# Said the same by an interpreter and by an environment that was made with it.
version='import sys; print(sys.version, sys.base_prefix)'

make_environment() {
    local id stamp=.venv/gridpost-stamp
    # Changes when anything that decides the content of the environment changes.
    id=$({ "$python" -c "$version"; cat requirements.lock pyproject.toml; } | sha256sum | cut -d' ' -f1)
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$id" ]; then return; fi
    say "making .venv with $("$python" --version) ($python); the first time takes a few minutes"
    # An environment of the same Python is brought up to date, any other is made anew.
    if [ "$("$python" -c "$version")" != "$(.venv/bin/python -c "import pip; $version" 2>/dev/null)" ]; then
        "$python" -m venv --clear .venv
    fi
    # The lock is complete, so nothing is resolved; Debian 12's pip would trip over an extra that is named in it.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        -r requirements.lock
    # The build backend is in the lock: nothing that has no hash is fetched for the package itself.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
    echo "$id" >"$stamp"
}

# Interop tests speak with an independent AMQP 1.0 library from npm; without node they are skipped.
make_interop() {
    local folder=tests/interop id stamp
    stamp=$folder/node_modules/.gridpost-stamp
    if ! have node || ! have npm; then
        say "node or npm is missing (Debian packages nodejs npm): interop tests will be skipped"
        return
    fi
    id=$(cat $folder/package.json $folder/package-lock.json | sha256sum | cut -d' ' -f1)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$id" ]; then return; fi
    if (cd $folder && npm ci --no-audit --no-fund --loglevel=error </dev/null >&2); then
        echo "$id" >"$stamp"
    else
        say "npm could not install the interop packages: interop tests will be skipped"
    fi
}

# Jars of Delta Lake that belong to the locked delta-spark and pyspark, for sessions that read a Delta lake. A patch
# release of the Python package may have no jars of its own: then those of the newest patch release before it.
make_delta() {
    local folder=.venv/share/gridpost/delta work=var/delta delta spark patch wanted today
    delta=$(sed -n 's/^delta-spark==\([0-9.]*\).*/\1/p' requirements.lock)
    spark=$(sed -n 's/^pyspark==\([0-9]*\.[0-9]*\)\..*/\1/p' requirements.lock)
    printf -v today '%(%F)T' -1
    wanted="delta-spark_${spark}_2.13 $delta"
    if [ -z "$delta" ] || [ -z "$spark" ] || [ "$(cat $folder/stamp 2>/dev/null)" = "$wanted" ]; then return; fi
    # Where Maven reaches nothing, asking once a day is enough.
    if [ "$(cat $work/failed 2>/dev/null)" = "$wanted $today" ]; then return; fi
    mkdir -p $work
    for ((patch = ${delta##*.}; patch >= 0; patch--)); do
        rm -rf $folder
        echo "<project><modelVersion>4.0.0</modelVersion><groupId>gridpost</groupId><artifactId>delta</artifactId>
<version>1</version><dependencies><dependency><groupId>io.delta</groupId>
<artifactId>delta-spark_${spark}_2.13</artifactId><version>${delta%.*}.$patch</version>
</dependency></dependencies></project>" >$work/pom.xml
        if (cd $work && timeout 180 mvn -q -B dependency:copy-dependencies -DincludeGroupIds=io.delta \
            -DoutputDirectory="$OLDPWD/$folder" </dev/null >log 2>&1) && compgen -G "$folder/delta-spark_*.jar" >/dev/null
        then
            echo "$wanted" >$folder/stamp
            return
        fi
    done
    echo "$wanted $today" >$work/failed
    say "Maven could not fetch the jars of Delta Lake $delta: its tests will be skipped"
}

# ---------------------------------------------------------------- main

# Two makes at once share one environment: the second waits for the first.
mkdir -p var
exec 9>var/bootstrap.lock
flock 9

look_around
if [ ${#missing[@]} -gt 0 ]; then
    install_missing
    look_around
    [ ${#missing[@]} -eq 0 ] || die "still missing after installation: ${reasons[*]}"
fi
make_environment
make_interop
make_delta
