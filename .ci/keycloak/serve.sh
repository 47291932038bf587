#!/usr/bin/env bash
# Serves Keycloak on a loopback port until it is stopped: bash .ci/keycloak/serve.sh PORT
#
# Its administrator is set by KC_BOOTSTRAP_ADMIN_USERNAME and KC_BOOTSTRAP_ADMIN_PASSWORD. If the
# distribution is missing from ~/.cache/tollgate-ci (or TOLLGATE_CI_CACHE), it is fetched with Maven
# and built for an in-memory database; its directory is created atomically.

set -euo pipefail
port="$1"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}"
home="$cache/keycloak-$(cat "$here/pom.xml" "$here/serve.sh" | sha256sum | cut -c1-12)"

# For a few requests: little memory, no optimising compiler.
export JAVA_OPTS_KC_HEAP="-Xms128m -Xmx512m"
export JAVA_OPTS_APPEND="-XX:-UseG1GC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

if [ ! -d "$home" ]; then
  mkdir -p "$cache"
  partial="$(mktemp -d "$home.XXXXXX")"
  trap 'rm -rf "$partial"' EXIT
  # Only one Maven at a time may write to ~/.m2.
  flock "$cache/maven.lock" mvn -B -q -f "$here/pom.xml" dependency:unpack-dependencies \
    -DincludeTypes=zip -DoutputDirectory="$partial" -DmarkersDirectory="$partial/markers" </dev/null
  distribution="$(echo "$partial"/keycloak-*)"
  bash "$distribution/bin/kc.sh" build --db=dev-mem
  # Fails if another process was faster; its directory is as good.
  mv -T "$distribution" "$home" 2>/dev/null || true
  rm -rf "$partial"
  trap - EXIT
fi
exec bash "$home/bin/kc.sh" start --optimized --http-enabled=true --http-host=127.0.0.1 \
  --http-port="$port" --hostname-strict=false --cache=local
