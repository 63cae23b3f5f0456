#!/usr/bin/env bash
# test-kafka.sh [go test arguments]: runs the Kafka sink's tests that want a real
# broker: Apache Kafka, fetched with Maven, as private brokers of one node that
# live as long as the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

PENSTOCK_TEST_KAFKA_JARS=$(script/kafka-jars.sh)
export PENSTOCK_TEST_KAFKA_JARS
(($#)) || set -- -v -run Broker
exec go test -count=1 -timeout "${TEST_TIMEOUT:-20m}" "$@" ./sink/kafka
