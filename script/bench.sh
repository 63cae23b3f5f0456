#!/usr/bin/env bash
# bench.sh [a benchmark and its flags, or those of relay]: measures on the servers that PENSTOCK_TEST_POSTGRES and
# PENSTOCK_TEST_RABBITMQ name, else on private ones, where a commit waits for the disk. Without the name of a
# benchmark it is the relay, from PostgreSQL to RabbitMQ.
set -euo pipefail
cd "$(dirname "$0")/.."

script/install-servers.sh
[[ ${1:-} == [a-z]* ]] || set -- relay "$@"
name=$1
shift
case $name in
relay | poison | park | outage | processor | all) broker=yes ;; # what follows may have another --sink
*) broker= ;;
esac
exec bin/withservers -durable -- bash -c '
	name=$1 broker=$2
	shift 2
	exec bin/bench "$name" --database-url "$PENSTOCK_TEST_POSTGRES" ${broker:+--sink "$PENSTOCK_TEST_RABBITMQ"} "$@"' bench "$name" "$broker" "$@"
