#!/usr/bin/env bash
# bench.sh [penstock bench relay flags]: measures the relay from PostgreSQL to
# RabbitMQ on the servers that PENSTOCK_TEST_POSTGRES and PENSTOCK_TEST_RABBITMQ
# name, else on private ones, where a commit waits for the disk.
set -euo pipefail
cd "$(dirname "$0")/.."

script/install-servers.sh
exec bin/withservers -durable -- bash -c \
	'exec bin/penstock bench relay --database-url "$PENSTOCK_TEST_POSTGRES" --sink "$PENSTOCK_TEST_RABBITMQ" "$@"' bench "$@"
