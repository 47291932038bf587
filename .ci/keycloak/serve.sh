#!/usr/bin/env bash
# Serves Keycloak on a loopback port until it is stopped: bash .ci/keycloak/serve.sh PORT
#
# KC_BOOTSTRAP_ADMIN_USERNAME and KC_BOOTSTRAP_ADMIN_PASSWORD name its administrator. The distribution is fetched by
# Maven and built for its database in memory when it is not there yet; it appears whole or not at all, and is
# kept in ~/.cache/tollgate-ci (or TOLLGATE_CI_CACHE).

set -euo pipefail
port="$1"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}"
home="$cache/keycloak-$(cat "$here/pom.xml" "$here/serve.sh" | sha256sum | cut -c1-12)"

# It has a few requests to answer: little memory, no optimising compiler.
export JAVA_OPTS_KC_HEAP="-Xms128m -Xmx512m"
export JAVA_OPTS_APPEND="-XX:-UseG1GC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

if [ ! -d "$home" ]; then
  mkdir -p "$cache"
  partial="$(mktemp -d "$home.XXXXXX")"
  trap 'rm -rf "$partial"' EXIT
  # One Maven at a time writes to ~/.m2.
  flock "$cache/maven.lock" mvn -B -q -f "$here/pom.xml" dependency:unpack-dependencies \
    -DincludeTypes=zip -DoutputDirectory="$partial" -DmarkersDirectory="$partial/markers" </dev/null
  distribution="$(echo "$partial"/keycloak-*)"
  bash "$distribution/bin/kc.sh" build --db=dev-mem
  # Whoever comes second finds it there.
  mv -T "$distribution" "$home" 2>/dev/null || true
  rm -rf "$partial"
  trap - EXIT
fi
exec bash "$home/bin/kc.sh" start --optimized --http-enabled=true --http-host=127.0.0.1 \
  --http-port="$port" --hostname-strict=false --cache=local
