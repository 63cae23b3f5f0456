#!/usr/bin/env bash
# bench-sinks.sh "SINK…" [flags of bench relay]: bench relay from PostgreSQL to redis, sqs, sns, pubsub and amqp1, or to those that are
# named. What counts is the ratio: the relay's rate over that of the same client, which sends the same messages from memory to the
# same broker in the same run, the median of three pairs: a Java broker is slow at first. A phase takes some seconds, so that the
# relay's start does not count. Redis flushes each change; SQS, SNS and Pub/Sub are emulators in the bench's process; amqp1 is Artemis.
set -euo pipefail
cd "$(dirname "$0")/.."

script/install-servers.sh
go build -o bin/withservers ./internal/test/testserver/withservers
sinks=${1:-redis sqs sns pubsub amqp1}
shift || true
for sink in $sinks; do
	messages=150000
	case $sink in
	redis) server=redis variable=PENSTOCK_TEST_REDIS messages=600000 ;;
	amqp1)
		PENSTOCK_TEST_ARTEMIS=$(script/artemis.sh)
		export PENSTOCK_TEST_ARTEMIS
		server=artemis variable=PENSTOCK_TEST_AMQP1
		;;
	*) server=none variable=PENSTOCK_TEST_EMULATOR PENSTOCK_TEST_EMULATOR=fake-$sink && export PENSTOCK_TEST_EMULATOR ;;
	esac
	echo "$sink:"
	# shellcheck disable=SC2016 # for the inner shell
	bin/withservers -durable -only postgres -- bin/withservers -only $server -- bash -c \
		'sink=${!1}; shift; exec bin/bench relay --database-url "$PENSTOCK_TEST_POSTGRES" --sink "$sink" "$@"' bench "$variable" --messages "$messages" --repeat 3 "$@"
done
