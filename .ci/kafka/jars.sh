#!/usr/bin/env bash
# Prints the directory with the broker's jars, in ~/.cache/tollgate-ci (or TOLLGATE_CI_CACHE).
# Fetches them with Maven if they are missing; the directory is created atomically.

set -euo pipefail
pom="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/pom.xml"
cache="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}"
jars="$cache/kafka-$(sha256sum "$pom" | cut -c1-12)"

if [ ! -d "$jars" ]; then
  mkdir -p "$cache"
  partial="$(mktemp -d "$jars.XXXXXX")"
  trap 'rm -rf "$partial"' EXIT
  # Only one Maven at a time may write to ~/.m2.
  flock "$cache/maven.lock" mvn -B -q -f "$pom" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$partial" >"$partial.log" 2>&1 </dev/null || {
    tail -n 15 "$partial.log" >&2
    rm -f "$partial.log"
    echo "kafka: Maven could not fetch the broker" >&2
    exit 1
  }
  rm -f "$partial.log"
  # Fails if another process was faster; its directory is as good.
  mv -T "$partial" "$jars" 2>/dev/null || true
fi
echo "$jars"
