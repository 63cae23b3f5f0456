#!/usr/bin/env bash
# bench-hour.sh [DURATION [FOLDER]]: the published load (100 jobs/s arrive, ten dequeuers, one minute ahead, a snapshot
# pinned) for an hour on six queues at once: FIFO and LIFO of the ring, of plain tables on PostgreSQL, and of MyRocks.
# FOLDER, bin/hour, gets the figures and a chart of each.
set -euo pipefail
cd "$(dirname "$0")/.."

script/install-servers.sh
duration=${1:-1h} folder=${2:-bin/hour}
mkdir -p "$folder"
exec bin/withservers -durable -- bash -c '
	duration=$1 folder=$2 rocks=$PENSTOCK_TEST_MARIADB
	[[ $rocks == *\?* ]] && rocks+="&engine=rocksdb" || rocks+="?engine=rocksdb"
	pids=()
	run() { # NAME URL [flags]
		local name=$1 url=$2
		shift 2
		bin/bench fifo-lifo --alone --database-url "$url" --schema "bench_$name" --order "${name#*_}" "$@" \
			--preload 6000 --rate 100 --dequeue-rate 100 --workers 10 --pin --duration "$duration" \
			--json --plot "$folder/$name.svg" >"$folder/$name.json" &
		pids+=($!)
	}
	for order in fifo lifo; do
		run "ring_$order" "$PENSTOCK_TEST_POSTGRES"
		run "plain_$order" "$PENSTOCK_TEST_POSTGRES" --profile portable
		run "rocks_$order" "$rocks"
	done
	failed=0
	for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
	exit $failed' bench "$duration" "$folder"
