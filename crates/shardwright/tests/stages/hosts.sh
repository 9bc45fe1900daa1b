# Two network namespaces joined by a cable: stage 0 in the first, stage 1 in the second. Called within `unshare -rn`.
# hosts.sh run PROGRAM ARGUMENTS...   runs a command in two stages; prints what stage 0 prints
# hosts.sh cut PROGRAM ARGUMENTS...   the same, but the cable is cut once both are loaded; prints how long they took to end
set -eu
what=$1
shift
unshare -n sleep 120 &
other=$!
trap 'kill $other; kill $(jobs -p) 2>/dev/null || true' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there netns $other
ip addr add 10.77.0.1/24 dev here
ip link set here up
there() { nsenter -t $other -n "$@"; }
there ip addr add 10.77.0.2/24 dev there
there ip link set there up
place="--pipeline-parallel-size 2 --master-addr 10.77.0.1"
# shellcheck disable=SC2086
there "$@" $place --node-rank 1 2>"$LOGS/1" &
later=$!
if [ "$what" = run ]; then
    # shellcheck disable=SC2086
    "$@" $place --node-rank 0 2>"$LOGS/0"
    wait $later
    exit
fi
# shellcheck disable=SC2086
"$@" $place --node-rank 0 2>"$LOGS/0" &
first=$!
while ! grep -q "all 2 stages are loaded" "$LOGS/0"; do sleep 0.05; done
sleep 0.2
ip link set here down
begun=$(date +%s%N)
for process in $first $later; do
    code=0
    wait $process || code=$?
    echo "$code after $((($(date +%s%N) - begun) / 1000000)) ms"
done
