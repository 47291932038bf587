# Starts real services for the tests: PostgreSQL, Redis, Kafka, Keycloak and Stripe's stripe-mock,
# on free loopback ports, with their files in a temporary directory.
#
#   source .ci/services.sh          # starts missing services, sets the TEST_* variables below
#   npm test                        # now also runs the end-to-end tests against the real parts
#   tollgate_stop_services          # stops the started services and removes their files
#
# Sets TEST_DATABASE_URL, TEST_REDIS_URL, TEST_KAFKA_BROKERS, TEST_KEYCLOAK_URL with
# TEST_KEYCLOAK_ADMIN (name:password), TEST_STRIPE_MOCK_URL, TEST_PYTHON, TEST_PROMETHEUS (and
# TEST_CHROMIUM if Chromium is installed). If a variable is already set, it stays and its service is not started.
# Needs Node, Java 17, Maven and Go. Installs PostgreSQL, Redis, PgBouncer, HAProxy and systemd-analyze with
# apt-get if missing.
# Caches downloads and stripe-mock in ~/.cache/tollgate-ci (or TOLLGATE_CI_CACHE). If TOLLGATE_DATABASES is set, PostgreSQL's files are
# there, and the caller must remove them.
#
# Keycloak starts slowest. With TOLLGATE_KEYCLOAK_LATER=1 it starts in the background; call
# tollgate_await_keycloak before its first use.

tollgate_ci_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

tollgate_fail() {
  echo "services: $*" >&2
  return 1
}

tollgate_free_port() {
  node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => {
    console.log(s.address().port); s.close() })'
}

# tollgate_wait_port NAME PORT PID LOG: waits until the port accepts connections, at most 60 s.
tollgate_wait_port() {
  local _
  for _ in $(seq 1 300); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; then return 0; fi
    kill -0 "$3" 2>/dev/null || break
    sleep 0.2
  done
  tail -n 20 "$4" >&2
  tollgate_fail "$1 did not start; the end of its log is above"
}

# tollgate_spawn NAME COMMAND...: runs a service in a new session and stores its pid.
tollgate_spawn() {
  local name="$1"
  shift
  # A subshell has no job control, so setsid does not fork and $! is the service.
  (
    setsid nohup "$@" >"$TOLLGATE_SERVICES/$name.log" 2>&1 </dev/null &
    echo $! >"$TOLLGATE_SERVICES/$name.pid"
  )
}

# Updates the package lists once per run.
tollgate_apt_update() {
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  [ ! -e "$TOLLGATE_SERVICES/apt-updated" ] || return 0
  "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update \
    >>"$TOLLGATE_SERVICES/apt.log" 2>&1 || true
  touch "$TOLLGATE_SERVICES/apt-updated"
}

tollgate_apt_install() {
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  tollgate_apt_update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 install "$@" >>"$TOLLGATE_SERVICES/apt.log" 2>&1 </dev/null || {
    tail -n 15 "$TOLLGATE_SERVICES/apt.log" >&2
    tollgate_fail "apt-get could not install $*"
  }
}

# Prints the newest PostgreSQL server installed from Debian's packages.
tollgate_postgres_bin() {
  find /usr/lib/postgresql -maxdepth 3 -path '*/bin/postgres' 2>/dev/null | sort -V | tail -n 1
}

tollgate_start_postgres() {
  [ -z "${TEST_DATABASE_URL:-}" ] || return 0
  local server bin data password port unprivileged=()
  # PostgreSQL refuses to run as root, so root runs it as uid 65534.
  [ "$(id -u)" != 0 ] || unprivileged=(setpriv --reuid 65534 --regid 65534 --clear-groups)
  server="$(tollgate_postgres_bin)"
  if [ -z "$server" ]; then
    tollgate_apt_install postgresql-15 || return 1
    server="$(tollgate_postgres_bin)"
  fi
  bin="$(dirname "$server")"
  data="${TOLLGATE_DATABASES:-$TOLLGATE_SERVICES}/postgres"
  password="$(node -p 'require("crypto").randomBytes(18).toString("base64url")')"
  port="$(tollgate_free_port)"
  mkdir -p "$data"
  echo "$password" >"$TOLLGATE_SERVICES/postgres.password"
  [ "$(id -u)" != 0 ] || chown 65534:65534 "$data" "$TOLLGATE_SERVICES/postgres.password"
  "${unprivileged[@]}" env -C "$data" "$bin/initdb" -D "$data" -U tollgate -A scram-sha-256 \
    --pwfile="$TOLLGATE_SERVICES/postgres.password" --no-sync --encoding=UTF8 --locale=C.UTF-8 \
    >"$TOLLGATE_SERVICES/initdb.log" 2>&1 || {
    tail -n 15 "$TOLLGATE_SERVICES/initdb.log" >&2
    tollgate_fail "initdb failed"
    return 1
  }
  # The data does not outlive the run, so no write waits for the disk.
  tollgate_spawn postgres "${unprivileged[@]}" env -C "$data" "$bin/postgres" -D "$data" \
    -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
    -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 -c jit=off \
    -c shared_buffers=128MB -c timezone=UTC
  tollgate_wait_port PostgreSQL "$port" "$(cat "$TOLLGATE_SERVICES/postgres.pid")" \
    "$TOLLGATE_SERVICES/postgres.log" || return 1
  export TEST_DATABASE_URL="postgres://tollgate:$password@127.0.0.1:$port/postgres"
}

tollgate_start_redis() {
  [ -z "${TEST_REDIS_URL:-}" ] || return 0
  local port
  command -v redis-server >/dev/null || tollgate_apt_install redis-server || return 1
  port="$(tollgate_free_port)"
  mkdir -p "$TOLLGATE_SERVICES/redis"
  tollgate_spawn redis redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no \
    --dir "$TOLLGATE_SERVICES/redis" --maxmemory 256mb --maxmemory-policy noeviction
  tollgate_wait_port Redis "$port" "$(cat "$TOLLGATE_SERVICES/redis.pid")" \
    "$TOLLGATE_SERVICES/redis.log" || return 1
  export TEST_REDIS_URL="redis://127.0.0.1:$port"
}

tollgate_start_kafka() {
  [ -z "${TEST_KAFKA_BROKERS:-}" ] || return 0
  local jars port controller config="$TOLLGATE_SERVICES/kafka.properties"
  jars="$(bash "$tollgate_ci_dir/kafka/jars.sh")" || return 1
  port="$(tollgate_free_port)"
  controller="$(tollgate_free_port)"
  cat >"$config" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$TOLLGATE_SERVICES/kafka
num.partitions=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
PROPERTIES
  java -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*" \
    kafka.tools.StorageTool format -t tollgate-ci-cluster-01 -c "$config" \
    >"$TOLLGATE_SERVICES/kafka-format.log" 2>&1 </dev/null || {
    tail -n 15 "$TOLLGATE_SERVICES/kafka-format.log" >&2
    tollgate_fail "Kafka's storage could not be formatted"
    return 1
  }
  tollgate_spawn kafka java -Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars/*" kafka.Kafka "$config"
  tollgate_wait_port Kafka "$port" "$(cat "$TOLLGATE_SERVICES/kafka.pid")" \
    "$TOLLGATE_SERVICES/kafka.log" || return 1
  export TEST_KAFKA_BROKERS="127.0.0.1:$port"
}

# Starts Keycloak without waiting for it.
tollgate_start_keycloak() {
  [ -z "${TEST_KEYCLOAK_URL:-}" ] || return 0
  local port password
  port="$(tollgate_free_port)"
  password="$(node -p 'require("crypto").randomBytes(18).toString("base64url")')"
  KC_BOOTSTRAP_ADMIN_USERNAME=admin KC_BOOTSTRAP_ADMIN_PASSWORD="$password" \
    tollgate_spawn keycloak bash "$tollgate_ci_dir/keycloak/serve.sh" "$port"
  export TEST_KEYCLOAK_URL="http://127.0.0.1:$port" TEST_KEYCLOAK_ADMIN="admin:$password"
}

# Installs the programs that tests start by themselves, each with its own files.
tollgate_install_programs() {
  local program missing=()
  for program in pgbouncer haproxy; do
    [ -x "/usr/sbin/$program" ] || missing+=("$program")
  done
  [ "${#missing[@]}" = 0 ] || tollgate_apt_install "${missing[@]}"
}

# tollgate_answers URL: succeeds if the URL answers with 2xx.
tollgate_answers() {
  node -e 'fetch(process.argv[1]).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))' "$1"
}

# Waits until Keycloak answers, at most four minutes, because Maven may have to fetch it first.
tollgate_await_keycloak() {
  [ -e "$TOLLGATE_SERVICES/keycloak.pid" ] || return 0
  local pid _
  pid="$(cat "$TOLLGATE_SERVICES/keycloak.pid")"
  for _ in $(seq 1 480); do
    if tollgate_answers "$TEST_KEYCLOAK_URL/realms/master"; then return 0; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 20 "$TOLLGATE_SERVICES/keycloak.log" >&2
  tollgate_fail "Keycloak did not start; the end of its log is above"
}

# Builds stripe-mock once and starts it. It checks requests against Stripe's published description.
tollgate_start_stripe_mock() {
  [ -z "${TEST_STRIPE_MOCK_URL:-}" ] || return 0
  local version=v0.203.0 home port
  home="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}/stripe-mock-$version"
  if [ ! -x "$home/stripe-mock" ]; then
    command -v go >/dev/null || tollgate_apt_install golang-go || return 1
    GOBIN="$home" GOPATH="$TOLLGATE_SERVICES/go" GOCACHE="$TOLLGATE_SERVICES/go-cache" \
      GOFLAGS="${GOFLAGS:-} -modcacherw" go install "github.com/stripe/stripe-mock@$version" \
      >"$TOLLGATE_SERVICES/stripe-mock-build.log" 2>&1 </dev/null || {
      tail -n 15 "$TOLLGATE_SERVICES/stripe-mock-build.log" >&2
      tollgate_fail "stripe-mock could not be built"
      return 1
    }
    rm -rf "$TOLLGATE_SERVICES/go" "$TOLLGATE_SERVICES/go-cache"
  fi
  port="$(tollgate_free_port)"
  tollgate_spawn stripe-mock "$home/stripe-mock" -http-addr "127.0.0.1:$port"
  tollgate_wait_port stripe-mock "$port" "$(cat "$TOLLGATE_SERVICES/stripe-mock.pid")" \
    "$TOLLGATE_SERVICES/stripe-mock.log" || return 1
  export TEST_STRIPE_MOCK_URL="http://127.0.0.1:$port"
}

# Creates a cached virtual environment of Python for the test of generated clients.
tollgate_python() {
  [ -z "${TEST_PYTHON:-}" ] || return 0
  local wanted="$tollgate_ci_dir/../test/clients/requirements.txt" home
  home="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}/python-$(cksum <"$wanted" | cut -d' ' -f1)"
  if [ ! -e "$home/complete" ]; then
    python3 -c 'import ensurepip' 2>/dev/null || tollgate_apt_install python3 python3-venv || return 1
    { rm -rf "$home" && python3 -m venv "$home" &&
      "$home/bin/pip" install --quiet -r "$wanted" && touch "$home/complete"; } \
      >"$TOLLGATE_SERVICES/python.log" 2>&1 || {
      tail -n 15 "$TOLLGATE_SERVICES/python.log" >&2
      tollgate_fail "the Python for generated clients could not be installed"
      return 1
    }
  fi
  export TEST_PYTHON="$home/bin/python"
}

# Finds Prometheus with promtool, or unpacks Debian's package into the cache. An installed package
# would start a server.
tollgate_prometheus() {
  [ -z "${TEST_PROMETHEUS:-}" ] || return 0
  local home="${TOLLGATE_CI_CACHE:-$HOME/.cache/tollgate-ci}/prometheus" unpacked
  if ! command -v prometheus >/dev/null && [ ! -x "$home/usr/bin/promtool" ]; then
    tollgate_apt_update
    unpacked="$(mktemp -d "$TOLLGATE_SERVICES/prometheus.XXXXXX")"
    { (cd "$unpacked" && apt-get -qq download prometheus) &&
      dpkg-deb -x "$unpacked"/prometheus_*.deb "$unpacked/files" && mkdir -p "$home" &&
      cp -r "$unpacked/files/usr" "$home/"; } >>"$TOLLGATE_SERVICES/apt.log" 2>&1 || {
      tail -n 15 "$TOLLGATE_SERVICES/apt.log" >&2
      tollgate_fail "Prometheus could not be downloaded"
      return 1
    }
  fi
  TEST_PROMETHEUS="$(command -v prometheus || echo "$home/usr/bin/prometheus")"
  export TEST_PROMETHEUS
}

# Starts all missing services. Fails if one fails, with a line that names it.
tollgate_start_services() {
  TOLLGATE_SERVICES="${TOLLGATE_SERVICES:-$(mktemp -d /tmp/tollgate-services.XXXXXX)}"
  export TOLLGATE_SERVICES
  # If this is root, PostgreSQL runs as another user, which needs access to the directory.
  chmod 711 "$TOLLGATE_SERVICES"
  command -v systemd-analyze >/dev/null || tollgate_apt_install systemd || return 1
  tollgate_start_keycloak
  tollgate_install_programs && tollgate_start_postgres && tollgate_start_redis && tollgate_start_kafka &&
    tollgate_python && tollgate_prometheus || return 1
  # Tests without it are reported as not run, which .ci/run treats as a failure.
  tollgate_start_stripe_mock || true
  [ -n "${TOLLGATE_KEYCLOAK_LATER:-}" ] || tollgate_await_keycloak || return 1
  tollgate_export_chromium
}

# Names an installed Chromium for the tests. The headless shell draws the same pages with less work.
tollgate_export_chromium() {
  local program
  for program in /usr/bin/chromium-headless-shell /usr/bin/chromium; do
    [ ! -x "$program" ] || export TEST_CHROMIUM="${TEST_CHROMIUM:-$program}"
  done
}

# Stops the services of tollgate_start_services, with SIGKILL after 10 s.
tollgate_stop_services() {
  local name pid _
  [ -n "${TOLLGATE_SERVICES:-}" ] || return 0
  for name in keycloak stripe-mock kafka redis postgres; do
    [ -e "$TOLLGATE_SERVICES/$name.pid" ] || continue
    pid="$(cat "$TOLLGATE_SERVICES/$name.pid")"
    # Each service leads its own process group. QUIT is PostgreSQL's immediate shutdown, which is
    # enough because its data is removed.
    if [ "$name" = postgres ]; then
      kill -QUIT "$pid" 2>/dev/null || true
    else
      kill -TERM -- "-$pid" 2>/dev/null || true
    fi
    for _ in $(seq 1 50); do
      kill -0 -- "-$pid" 2>/dev/null || break
      sleep 0.2
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
  done
  rm -rf "$TOLLGATE_SERVICES"
  unset TOLLGATE_SERVICES TEST_DATABASE_URL TEST_REDIS_URL TEST_KAFKA_BROKERS \
    TEST_KEYCLOAK_URL TEST_KEYCLOAK_ADMIN TEST_STRIPE_MOCK_URL
}

tollgate_start_services
