#!/usr/bin/env bash
# The main job on real input, on this machine only: three broker processes and
# an S3 server; real events published with their own keys and times; rolled to
# the store; a broker killed; everything replayed by two clients and compared
# byte for byte.
#
#   usage: demo.sh path/to/thermocline [events.json]
set -euo pipefail
bin=$(readlink -f "${1:?usage: demo.sh path/to/thermocline [events.json]}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
events=$(readlink -f "${2:-$here/data/flights-2k.json}")
work=$(mktemp -d)
export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo-secret
base=${DEMO_BASE_PORT:-29090}
kafka=(0 $((base + 1)) $((base + 2)) $((base + 3)))
s3=$((base + 4))
pids=()

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
finish() {
  status=$?
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ $status -ne 0 ]; then
    echo "demo: FAILED (logs in $work)"
  else
    rm -rf "$work"
  fi
}
trap finish EXIT

start_broker() { # $1: node id
  local id=$1
  "$bin" broker --node.id="$id" --data.dir="$work/broker$id" \
    --listeners="PLAINTEXT://127.0.0.1:${kafka[$id]}" \
    --peer.listener="127.0.0.1:$((base + 10 + id))" --http.listener="127.0.0.1:$((base + 20 + id))" \
    --etcd.initial.cluster="1=http://127.0.0.1:$((base + 31)),2=http://127.0.0.1:$((base + 32)),3=http://127.0.0.1:$((base + 33))" \
    --etcd.listen.peer="http://127.0.0.1:$((base + 30 + id))" --etcd.listen.client="http://127.0.0.1:$((base + 40 + id))" \
    --store.url="s3://demo/cluster?region=us-east-1&endpoint=http://127.0.0.1:$s3" \
    --wal.max.bytes=256MiB >>"$work/broker$id.log" 2>&1 &
  broker[$id]=$!
  pids+=($!)
}

say "1. An S3 server and three brokers, each a process"
"$bin" s3 --dir "$work/bucket" --listen "127.0.0.1:$s3" --bucket demo \
  --access-key "$AWS_ACCESS_KEY_ID" --secret-key "$AWS_SECRET_ACCESS_KEY" >"$work/s3.log" 2>&1 &
pids+=($!)
broker=()
for id in 1 2 3; do start_broker $id; done
export THERMOCLINE_BOOTSTRAP_SERVER="127.0.0.1:${kafka[1]},127.0.0.1:${kafka[2]},127.0.0.1:${kafka[3]}"
ready=0
for _ in $(seq 100); do
  if [ "$("$bin" topic list 2>/dev/null | wc -l)" -ge 1 ] &&
    "$bin" topic create flights --partitions 6 --replication-factor 3 --if-not-exists >/dev/null 2>&1; then ready=1 && break; fi
  sleep 0.2
done
[ $ready = 1 ] || { echo "the brokers did not become ready"; exit 1; }
"$bin" topic create earthquakes --partitions 1
"$bin" topic list

say "2. Publish: flights keyed by origin airport at their own times; earthquakes with kcat"
"$bin" produce flights "$events" --input json --key-field origin --timestamp-field date
kcat -P -q -b "$THERMOCLINE_BOOTSTRAP_SERVER" -t earthquakes -l "$here/data/earthquakes.jsonl" -X request.required.acks=all

say "3. Roll: seal, upload, trim; the brokers keep no byte of it"
"$bin" topic roll flights --wait
"$bin" topic roll earthquakes --wait
for p in 0 1 2 3 4 5; do "$bin" inspect partition "flights/$p"; done | tee "$work/inspect"
if grep -E 'hot bytes +[1-9]' "$work/inspect"; then echo "hot bytes are left"; exit 1; fi

say "4. Kill the broker that leads flights/0 (kill -9)"
leader=$("$bin" topic describe flights | awk '$1 == "0" {print $2}')
kill -9 "${broker[$leader]}"
wait "${broker[$leader]}" 2>/dev/null || true
echo "broker $leader is gone"

say "5. Replay from the beginning with kcat and with our own consumer"
norm() { LC_ALL=C sort | sha256sum | cut -d' ' -f1; }
"$bin" consume flights --until-end -q -f '%v\n' | norm >"$work/ours"
kcat -C -q -b "$THERMOCLINE_BOOTSTRAP_SERVER" -t flights -o beginning -e -f '%s\n' | norm >"$work/kcat"
sed -e 's/^\[//; s/\]$//; s/},{/}\n{/g' "$events" | awk 1 | norm >"$work/want"
paste -d' ' "$work/want" "$work/ours" "$work/kcat"
cmp "$work/want" "$work/ours" && cmp "$work/want" "$work/kcat"
kcat -C -q -b "$THERMOCLINE_BOOTSTRAP_SERVER" -t earthquakes -o beginning -e -f '%s\n' | sha256sum >"$work/quakes"
sha256sum <"$here/data/earthquakes.jsonl" | cmp - "$work/quakes"

say "6. Replay from a date: 2001-02-15"
since=$(date -u -d '2001-02-15' +%s)000
"$bin" consume flights --from 2001-02-15 --until-end -q -f '%v\n' | norm >"$work/ours.date"
kcat -C -q -b "$THERMOCLINE_BOOTSTRAP_SERVER" -t flights -o "s@$since" -e -f '%s\n' | norm >"$work/kcat.date"
cmp "$work/ours.date" "$work/kcat.date"
"$bin" consume flights --until-end -q -f '%p %o %T %v\n' >"$work/all"
awk -v since="$since" '$3 >= since && !($1 in first) {first[$1] = $2} {line[NR] = $0}
  END {for (i = 1; i <= NR; i++) {split(line[i], f, " "); if (f[1] in first && f[2] + 0 >= first[f[1]] + 0) {sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", line[i]); print line[i]}}}' "$work/all" | norm >"$work/want.date"
cmp "$work/want.date" "$work/ours.date"
wc -l <"$work/all"

say "The same bytes came back, from the store, with a broker down: $(cat "$work/want")"
