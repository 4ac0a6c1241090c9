#!/bin/sh
# Builds Horovod for the PyTorch and TensorFlow of a Python environment, with the patches beside this file.
#
#     images/horovod/build-wheel.sh PYTHON FOLDER
#
# PYTHON has torch, tensorflow or both, and setuptools < 81, wheel, cloudpickle, psutil, pyyaml, packaging and cffi.
# FOLDER gets the wheel; one that is there already for the same versions and patches is left. Needs a C++ compiler,
# cmake and MPI's headers (Debian: g++ cmake libopenmpi-dev), and takes four minutes of one core.
set -eu
[ $# = 2 ] || { sed -n 's/^#     /usage: /p' "$0" >&2; exit 2; }
version=0.28.1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=$1
mkdir -p "$2"
folder=$(cd -- "$2" && pwd)

has() { "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }
built_for=$("$python" - <<'PYTHON'
import importlib.metadata, sys
names = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}
kept = ("torch", "tensorflow", "tensorflow-cpu", "numpy", "mpi4py")
print("python", *sys.version_info[:2], *[f"{name}={names[name]}" for name in kept if name in names])
PYTHON
)
stamp="$built_for $(cat "$here"/patches/*.patch "$0" | sha256sum | cut -c1-16)"
if [ -f "$folder/built-for" ] && [ "$(cat "$folder/built-for")" = "$stamp" ] && ls "$folder"/horovod-*.whl >/dev/null 2>&1
then
    echo "$folder has it: $stamp"
    exit 0
fi
for tool in c++ cmake mpicxx patch; do
    command -v "$tool" >/dev/null || { echo "$tool is missing (Debian: g++ cmake libopenmpi-dev patch)" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation -d "$work" "horovod==$version"
tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
for patch in "$here"/patches/*.patch; do
    patch -s -p1 -d "$work/horovod-$version" <"$patch"
done
HOROVOD_WITH_GLOO=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_MXNET=1
if has torch; then HOROVOD_WITH_PYTORCH=1 && export HOROVOD_WITH_PYTORCH
else HOROVOD_WITHOUT_PYTORCH=1 && export HOROVOD_WITHOUT_PYTORCH; fi
if has tensorflow; then HOROVOD_WITH_TENSORFLOW=1 && export HOROVOD_WITH_TENSORFLOW
else HOROVOD_WITHOUT_TENSORFLOW=1 && export HOROVOD_WITHOUT_TENSORFLOW; fi
export HOROVOD_WITH_GLOO HOROVOD_WITH_MPI HOROVOD_WITHOUT_MXNET MAKEFLAGS="-j$(nproc)"
rm -f "$folder"/horovod-*.whl
"$python" -m pip wheel -q --no-build-isolation --no-deps -w "$folder" "$work/horovod-$version"
echo "$stamp" >"$folder/built-for"
ls -l "$folder"
