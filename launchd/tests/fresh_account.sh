#!/bin/sh
# A new user's account: install, status, calibrate, a crash, a reboot, the first use on demand, an upgrade, uninstall. The home is then as it was.
# 'cargo xtask fresh-account' runs it in namespaces of its own: fresh_account.sh PROGRAMS PLACE
set -eu

programs=$1
place=$2
checkout=$(cd "$(dirname "$0")/../.." && pwd)
export HOME="$place/home" XDG_RUNTIME_DIR="$place/run"
unset XDG_CONFIG_HOME XDG_STATE_HOME DBUS_SESSION_BUS_ADDRESS FUSION_SOCKET FUSION_STATE_DIR FUSION_CONFIG_DIR 2>/dev/null || true
# Only systemd's own units and the user's: what else is installed here is no part of this.
export SYSTEMD_UNIT_PATH="$HOME/.config/systemd/user:/usr/lib/systemd/user:/lib/systemd/user"

say() { echo "fresh account: $*"; }
fail() {
    echo "fresh account: FAILED: $*" >&2
    echo "--- systemd:" >&2; tail -n 20 "$place/systemd.log" >&2 || true
    echo "--- fusiond:" >&2; "$programs/fusionctl" logs -n 20 >&2 || true
    exit 1
}
listing() { (cd "$HOME" && find . | sort); }

# Waits until a command succeeds: at most a minute, on however busy a machine.
eventually() {
    tries=0
    until "$@" >"$place/said" 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "$* never succeeded: $(cat "$place/said")"
        sleep 0.2
    done
}

pid_of_daemon() { fusionctl status --json | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p'; }
is_another_than() { now=$(pid_of_daemon) && [ -n "$now" ] && [ "$now" != "$1" ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# Where the loader finds the worker's library of MLX.
mlx_of() { LD_TRACE_LOADED_OBJECTS=1 "$1" | sed -n 's/.*libmlxc\.so => \(.*\)\/lib\/libmlxc\.so (0x.*/\1/p'; }
# As if the checkout was moved away, with what it was built into and with the MLX that was prepared for it.
built_in=$(dirname "$(dirname "$programs")")
prepared=$(mlx_of "$programs/fusion-worker")
hide() { for folder in "$prepared" "$built_in" "$checkout"; do mount -t tmpfs tmpfs "$folder"; done; }
show() { for folder in "$checkout" "$built_in" "$prepared"; do umount "$folder"; done; }

boot() {
    rm -rf "$XDG_RUNTIME_DIR"
    mkdir -m 700 "$XDG_RUNTIME_DIR"
    for systemd in /lib/systemd/systemd /usr/lib/systemd/systemd; do [ -x $systemd ] && break; done
    $systemd --user --log-target=console >>"$place/systemd.log" 2>&1 &
    manager=$!
    eventually systemctl --user is-active default.target
}

# systemd asks whether the machine was booted with it.
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
mkdir -p "$HOME"
echo mine >"$HOME/notes"
before=$(listing)

say "log in"
boot

say "install"
"$programs/fusionctl" install --at-login
export PATH="$HOME/.fusion/bin:$PATH"
[ "$(command -v fusionctl)" = "$HOME/.fusion/bin/fusionctl" ] || fail "fusionctl isn't in its place"
# Its first answer was waited for.
fusionctl status >"$place/said"
fusionctl install | grep -q 'installed already' || fail "a second install did something"

say "the checkout is gone: what is installed needs nothing of it"
[ -n "$prepared" ] || fail "the loader doesn't tell where $programs/fusion-worker finds MLX"
hide
[ ! -e "$programs" ] || fail "the programs that were built are still in reach"
[ "$(mlx_of "$HOME/.fusion/bin/fusion-worker")" = "$HOME/.fusion/bin/fusion-mlx" ] || fail "the installed worker finds MLX elsewhere"
fusion-worker --self-test >"$place/said" 2>&1 || fail "the installed worker says: $(cat "$place/said")"

say "calibrate"
# Where others work, too, every call may be disturbed: then it is measured again.
eventually fusionctl calibrate 64x64x64
fusionctl ratios list --json | grep -q 64x64x64 || fail "the ratio isn't known"

say "the daemon is killed, and comes back"
first=$(pid_of_daemon)
kill -9 "$first"
eventually is_another_than "$first"

say "reboot"
daemon=$(pid_of_daemon)
kill -9 $manager "$daemon"
wait $manager 2>/dev/null || true
eventually is_gone "$daemon"
boot
eventually fusionctl status
fusionctl ratios list --json | grep -q 64x64x64 || fail "the ratio is forgotten"

say "stop, and start"
fusionctl stop
if fusionctl status 2>"$place/said"; then fail "it runs after a stop"; fi
grep -q "it was stopped" "$place/said" || fail "status says: $(cat "$place/said")"
fusionctl start
fusionctl restart

say "on demand: looking starts nothing, the first use does"
fusionctl install --on-demand
for look in status status metrics; do
    if fusionctl $look >"$place/said" 2>&1; then fail "$look started it"; fi
    grep -q "with the first client" "$place/said" || fail "$look says: $(cat "$place/said")"
done
eventually fusionctl ratios list --json
grep -q 64x64x64 "$place/said" || fail "the first use says: $(cat "$place/said")"
fusionctl status | grep -q "systemd, on demand" || fail "status doesn't tell how it starts"

say "upgrade"
show
mkdir "$place/next"
for program in fusiond fusion-worker fusionctl; do
    cp "$programs/$program" "$place/next"
    # Another build: a program bears bytes behind its end.
    printf 'next' >>"$place/next/$program"
done
old=$(pid_of_daemon)
"$place/next/fusionctl" install
eventually is_another_than "$old"
cmp -s "$place/next/fusiond" "/proc/$(pid_of_daemon)/exe" || fail "the old program still runs"
fusionctl ratios list --json | grep -q 64x64x64 || fail "the upgrade forgot the ratio"

say "a daemon that can't start tells why, gives up, and goes on when told"
fusionctl stop
mv "$HOME/.local/state/fusion" "$place/aside"
echo "no directory" >"$HOME/.local/state/fusion"
if fusionctl start 2>"$place/said"; then fail "it started without its state"; fi
grep -q "state directory" "$place/said" || fail "start says: $(cat "$place/said")"
gave_up() { if fusionctl ratios list >"$place/told" 2>&1; then return 1; fi; grep -q "gave up after 5" "$place/told"; }
eventually gave_up
told_by_status() { if fusionctl status >"$place/told" 2>&1; then return 1; fi; grep -q "5 in a row.*state directory" "$place/told"; }
eventually told_by_status
rm "$HOME/.local/state/fusion"
mv "$place/aside" "$HOME/.local/state/fusion"
fusionctl start

say "a daemon that panics leaves its last words, and the doctor names them"
fusionctl stop
systemctl --user set-environment FUSION_TEST_PANIC=1
if fusionctl start >"$place/said" 2>&1; then fail "it doesn't panic"; fi
systemctl --user unset-environment FUSION_TEST_PANIC
fusionctl logs --crashes | grep -q "FUSION_TEST_PANIC is set" || fail "the panic isn't in the logs"
fusionctl doctor --no-self-test >"$place/said" 2>&1 || true
grep -q "fusiond panicked at .*FUSION_TEST_PANIC is set" "$place/said" || fail "the doctor says: $(cat "$place/said")"
fusionctl start

say "uninstall"
last=$(pid_of_daemon)
fusionctl uninstall --purge --yes
is_gone "$last" || fail "the daemon survived"
[ "$(listing)" = "$before" ] || fail "the home has changed: $(listing)"
[ "$(cat "$HOME/notes")" = mine ] || fail "the user's notes have changed"
systemctl --user list-unit-files 'fusiond*' --no-legend | grep -q fusiond && fail "systemd still knows it"
say "the home is as it was"

say "install and uninstall are killed at every step, and mended by the same command"
# With a worker whose libraries lie as MLX's do, and aren't 60 MB each time.
small="$place/small"
mlx="$small/mlx/lib"
core="$small/mlx/site/mlx/lib"
mkdir -p "$mlx" "$core"
ln -s "$programs/fusiond" "$programs/fusionctl" "$small"
build() { cc -x c - "$@" || fail "no C compiler: cc $*"; }
echo 'int core(void) { return 1; }' | build -shared -fPIC -o "$core/libmlx.so"
echo 'int core(void); int mlx(void) { return core(); }' |
    build -shared -fPIC -o "$mlx/libmlxc.so" -L"$core" -lmlx -Wl,-rpath,'$ORIGIN/../site/mlx/lib'
echo 'int mlx(void); int main(void) { return mlx(); }' |
    build -o "$small/fusion-worker" -L"$mlx" -lmlxc -Wl,-rpath,'$ORIGIN/fusion-mlx/lib':"$mlx" -Wl,-rpath-link,"$core"
step=0
killed=2
while [ $killed -gt 0 ]; do
    killed=0
    for start in --at-login --on-demand; do
        FUSION_CRASH_AT_STEP=$step "$programs/fusionctl" install $start --from "$small" --no-wait --quiet >"$place/said" 2>&1 || killed=$((killed + 1))
        "$programs/fusionctl" install $start --from "$small" --no-wait --quiet >"$place/said" 2>&1 || fail "install after a kill at step $step: $(cat "$place/said")"
        "$HOME/.fusion/bin/fusionctl" install --no-wait | grep -q 'installed already' || fail "install after a kill at step $step isn't whole"
        [ "$(mlx_of "$HOME/.fusion/bin/fusion-worker")" = "$HOME/.fusion/bin/fusion-mlx" ] || fail "after a kill at step $step the worker finds its libraries elsewhere"
    done
    eventually "$HOME/.fusion/bin/fusionctl" ratios list
    FUSION_CRASH_AT_STEP=$step "$programs/fusionctl" uninstall --purge --yes --quiet >"$place/said" 2>&1 || killed=$((killed + 1))
    "$programs/fusionctl" uninstall --purge --yes --quiet >"$place/said" 2>&1 || fail "uninstall after a kill at step $step: $(cat "$place/said")"
    [ "$(listing)" = "$before" ] || fail "after a kill at step $step the home has changed: $(listing)"
    step=$((step + 1))
done
[ $step -gt 15 ] || fail "only $step steps were seen"
say "$step steps"
