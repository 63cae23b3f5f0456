package measure

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// FakeKafka is what stands for the broker in a --sink.
const FakeKafka = "kfake"

// StartFakeKafka runs franz-go's imitation of a Kafka broker in this process: it
// answers as one does, from memory, and so shows what a client costs.
func StartFakeKafka() (sinkURL string, stop func(), err error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return "", nil, err
	}
	return "kafka://" + strings.Join(cluster.ListenAddrs(), ","), cluster.Close, nil
}
