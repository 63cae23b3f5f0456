#!/usr/bin/env bash
# bench-hour.sh [DURATION [FOLDER [QUEUE ...]]]: the published load (100 jobs/s arrive, ten dequeuers, one minute ahead, a
# snapshot pinned) for an hour: FIFO and LIFO of the ring, of plain tables on PostgreSQL, and of MyRocks.
# FOLDER, bin/hour, gets the figures and a chart of each. All six run at once; queues that are named, as ring_fifo or
# plain_lifo, run one after the other, each on a new server.
set -euo pipefail
cd "$(dirname "$0")/.."

for name in "${@:3}"; do
	[[ $name =~ ^(ring|plain|rocks)_(fifo|lifo)$ ]] || { echo "bench-hour.sh: no queue $name" >&2; exit 2; }
done

script/install-servers.sh
duration=${1:-1h} folder=${2:-bin/hour}
mkdir -p "$folder"

run() { # SERVER QUEUE ..., "" is all servers
	local server=$1
	shift
	bin/withservers -durable -only "$server" -- bash -c '
		duration=$1 folder=$2
		shift 2
		pids=()
		for name in "$@"; do
			case $name in
			ring_*) to=(--database-url "$PENSTOCK_TEST_POSTGRES") ;;
			plain_*) to=(--database-url "$PENSTOCK_TEST_POSTGRES" --profile portable) ;;
			rocks_*)
				url=$PENSTOCK_TEST_MARIADB
				[[ $url == *\?* ]] && url+="&engine=rocksdb" || url+="?engine=rocksdb"
				to=(--database-url "$url")
				;;
			esac
			bin/bench fifo-lifo --alone "${to[@]}" --schema "bench_$name" --order "${name#*_}" \
				--preload 6000 --rate 100 --dequeue-rate 100 --workers 10 --pin --duration "$duration" \
				--json --plot "$folder/$name.svg" >"$folder/$name.json" &
			pids+=($!)
		done
		failed=0
		for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
		exit $failed' bench "$duration" "$folder" "$@"
}

if [ $# -lt 3 ]; then
	run "" {ring,plain,rocks}_{fifo,lifo}
fi
for name in "${@:3}"; do
	case $name in
	rocks_*) run mariadb "$name" ;;
	*) run postgres "$name" ;;
	esac
done
