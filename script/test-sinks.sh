#!/usr/bin/env bash
# test-sinks.sh [go test arguments]: runs the tests of cloud sinks against emulators that are not
# written in Go: SQS, SNS and S3 against moto, fetched from PyPI into bin/, and SQS against ElasticMQ, fetched with Maven. AMQP 1.0
# runs on Artemis.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/bin/moto
if [[ ! -x $venv/bin/moto_server ]]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet 'moto[server]==5.2.5'
fi
export PENSTOCK_TEST_MOTO=$venv/bin/moto_server
PENSTOCK_TEST_ELASTICMQ=$(script/elasticmq.sh)
export PENSTOCK_TEST_ELASTICMQ
PENSTOCK_TEST_ARTEMIS=$(script/artemis.sh)
export PENSTOCK_TEST_ARTEMIS
(($#)) || set -- -v -run 'Moto|ElasticMQ|Artemis'
exec go test -count=1 -timeout "${TEST_TIMEOUT:-20m}" "$@" ./sink/sqs ./sink/sns ./sink/claimcheck/s3 ./sink/amqp1
