#!/usr/bin/env bash
# Trains on two hosts through MPI and compares losses and checkpoint, bit for bit, with one host: scripts/two-hosts-test.sh
# [BINARY]. The hosts are network namespaces with a cable between them. Ends with 77, and says why, where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "${1:-build/bin/orthant}")
skip() {
  echo "two-hosts: skipped: $*"
  exit 77
}
[ -x "$binary" ] || skip "there is no $binary; run scripts/build.sh"
"$binary" version | grep -q MPI || skip "$binary is built without MPI"
for program in mpirun ip unshare; do
  command -v "$program" >/dev/null || skip "$program is not installed"
done
[ "$(id -u)" = 0 ] || skip "network namespaces need root"

first=orthant-a-$$ second=orthant-b-$$
work=$(mktemp -d)
clean() {
  ip netns del "$first" 2>/dev/null || true
  ip netns del "$second" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
{ ip netns add "$first" && ip netns add "$second"; } 2>"$work/err" || skip "ip netns: $(cat "$work/err")"
ip link add veth-a netns "$first" type veth peer name veth-b netns "$second" 2>"$work/err" || skip "veth: $(cat "$work/err")"
ip -n "$first" addr add 10.77.0.1/24 dev veth-a
ip -n "$second" addr add 10.77.0.2/24 dev veth-b
for host in "$first veth-a" "$second veth-b"; do
  read -r space device <<<"$host"
  ip -n "$space" link set lo up
  ip -n "$space" link set "$device" up
done

# In place of ssh: AGENT ADDRESS COMMAND... starts MPI's daemon on the second host.
cat >"$work/agent" <<END
#!/usr/bin/env bash
shift
exec ip netns exec $second unshare --uts bash -c "hostname second; \$*"
END
chmod +x "$work/agent"

cat >"$work/run.toml" <<END
[model]
family = "llama"
layers = 4
hidden = 32
heads = 4
ffn = 64
vocab = 256
max_positions = 32
[layout]
ranks = 4
tp = 2
[train]
steps = 6
global_batch = 8
seq_length = 16
[data]
train = ["corpus"]
[checkpoint]
dir = "ckpt"
END
cd "$work"
head -c 20000 /dev/urandom | base64 >text
"$binary" data pack text --tokenizer bytes --output corpus >/dev/null
train() { # LAYOUT NAME COMMAND...
  local pp=$1 name=$2
  shift 2
  "$@" train run.toml --layout.pp="$pp" --log.dir="log-$name" --checkpoint.dir="ckpt-$name" >"out-$name" 2>&1 ||
    { cat "out-$name"; echo "two-hosts: the training '$name' has failed"; exit 1; }
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
on_two_hosts=(ip netns exec "$first" unshare --uts bash -c 'hostname first; exec "$@"' _
  mpirun --mca plm_rsh_agent "$work/agent" --host 10.77.0.1:2,10.77.0.2:2 -n 4 --oversubscribe
  --mca btl tcp,vader,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$binary")

losses() { sed 's/"step_ms".*//' "$1/metrics.jsonl"; }
for pp in 1 2; do
  train "$pp" "one-$pp" "$binary"
  train "$pp" "two-$pp" timeout 120 "${on_two_hosts[@]}"
  grep -q '4 processes, started by mpirun' "out-two-$pp" || { echo "two-hosts: mpirun has not started the ranks"; exit 1; }
  diff <(losses "log-one-$pp") <(losses "log-two-$pp") || { echo "two-hosts: pp $pp: losses differ"; exit 1; }
  diff -r "ckpt-one-$pp" "ckpt-two-$pp" || { echo "two-hosts: pp $pp: checkpoints differ"; exit 1; }
  sent=$(ip -n "$first" -s link show veth-a | awk '/TX:/ { getline; print $1 }')
  echo "two-hosts: pp $pp: two hosts and one give the same bits; $sent bytes have left the first host"
  [ "$sent" -gt 100000 ] || { echo "two-hosts: too little went over the cable"; exit 1; }
done
