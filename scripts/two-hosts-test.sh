#!/usr/bin/env bash
# Trains on two hosts, by sockets and through MPI, and compares losses and checkpoint, bit for bit, with one host:
# scripts/two-hosts-test.sh [BINARY]. The hosts are namespaces with a cable between them. Ends with 77, and says why, where it
# cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "${1:-build/bin/orthant}")
skip() {
  echo "two-hosts: skipped: $*"
  exit 77
}
[ -x "$binary" ] || skip "there is no $binary; run scripts/build.sh"
for program in ip unshare; do
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

# By torchrun's variables, as agents on both hosts would set them: two ranks each.
cat >"$work/agent-of-two" <<END
#!/usr/bin/env bash
first_rank=\$1
shift
for i in 0 1; do
  env RANK=\$((first_rank + i)) LOCAL_RANK=\$i WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29577 \
    "$binary" "\$@" >"\$OUT-\$((first_rank + i))" 2>&1 &
  pids[\$i]=\$!
done
wait "\${pids[0]}" && wait "\${pids[1]}"
END
chmod +x "$work/agent-of-two"
cat >"$work/by-sockets" <<END
#!/usr/bin/env bash
export OUT=\$PWD/rank
ip netns exec $second unshare --pid --fork --mount-proc --kill-child "$work/agent-of-two" 2 "\$@" &
ip netns exec $first unshare --pid --fork --mount-proc --kill-child "$work/agent-of-two" 0 "\$@" || status=1
wait \$! || status=1
cat rank-0 rank-1 rank-2 rank-3
exit \${status:-0}
END
chmod +x "$work/by-sockets"

losses() { sed 's/"step_ms".*//' "$1/metrics.jsonl"; }
has_mpi=true
if ! "$binary" version | grep -q MPI || ! command -v mpirun >/dev/null; then
  has_mpi=false
  echo "two-hosts: no MPI is here, so only sockets are tried"
fi
compare() { # PP NAME WORDS: the training of that name was started by these, and is as the one of one host
  local pp=$1 name=$2-$1 started=$3
  grep -q "4 processes, started by $started" "out-$name" || { echo "two-hosts: $started has not started the ranks"; exit 1; }
  diff <(losses "log-one-$pp") <(losses "log-$name") || { echo "two-hosts: pp $pp: losses differ"; exit 1; }
  diff -r "ckpt-one-$pp" "ckpt-$name" || { echo "two-hosts: pp $pp: checkpoints differ"; exit 1; }
  local sent
  sent=$(ip -n "$first" -s link show veth-a | awk '/TX:/ { getline; print $1 }')
  echo "two-hosts: pp $pp, $started: two hosts and one give the same bits; $sent bytes have left the first host"
  [ "$sent" -gt $((last_sent + 100000)) ] || { echo "two-hosts: too little went over the cable"; exit 1; }
  last_sent=$sent
}
last_sent=0
for pp in 1 2; do
  train "$pp" "one-$pp" "$binary"
  train "$pp" "sockets-$pp" timeout 120 "$work/by-sockets"
  compare "$pp" sockets torchrun
  [ "$has_mpi" = true ] || continue
  train "$pp" "mpi-$pp" timeout 120 "${on_two_hosts[@]}"
  compare "$pp" mpi mpirun
done
