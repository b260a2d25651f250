# Versions of the tools that these scripts install, and the function that installs them.
GOLANGCI_LINT=v2.12.2
GOVULNCHECK=v1.9.0
GORELEASE=v0.0.0-20261113113407-e3970619a1a4
CYCLONEDX=v1.10.0
tools="$(go env GOPATH)/graspsync-ci-tools"

# tool installs a command in a version, and prints its path.
tool() {
  local path=$1 version=$2
  local name=${path##*/}
  local bin="$tools/$name-$version"
  if [ ! -x "$bin" ]; then
    mkdir -p "$tools"
    GOBIN="$tools" GOFLAGS= go install "$path@$version" >&2
    mv "$tools/$name" "$bin"
  fi
  printf '%s\n' "$bin"
}
