package measure

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/penstock/penstock/internal/test/awstest"
	"github.com/penstock/penstock/internal/test/pubsubtest"
)

// emulators are what stands for a broker in a --sink: it runs in this process and answers from memory, and so shows what a
// client costs.
var emulators = map[string]func() (sinkURL string, stop func(), err error){
	"kfake": func() (string, func(), error) {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return "", nil, err
		}
		return "kafka://" + strings.Join(cluster.ListenAddrs(), ","), cluster.Close, nil
	},
	"fake-sqs": func() (string, func(), error) {
		return fakeAWS("sqs://sqs." + awstest.Region + ".amazonaws.com/" + awstest.Account + "/bench")
	},
	"fake-sns": func() (string, func(), error) {
		return fakeAWS("sns://arn:aws:sns:" + awstest.Region + ":" + awstest.Account + ":bench")
	},
	"fake-pubsub": func() (string, func(), error) {
		address, stop, err := pubsubtest.Serve()
		return "pubsub://" + pubsubtest.Project + "/bench?allow_private=true&endpoint=http://" + address, stop, err
	},
}

func fakeAWS(url string) (string, func(), error) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": awstest.KeyID, "AWS_SECRET_ACCESS_KEY": awstest.SecretKey, "AWS_EC2_METADATA_DISABLED": "true"} {
		if err := os.Setenv(name, value); err != nil {
			return "", nil, err
		}
	}
	address, stop := awstest.Serve()
	return url + "?allow_private=true&endpoint=http://" + address, stop, nil
}

// Emulators are the names that StartEmulator knows.
func Emulators() string { return strings.Join(slices.Sorted(maps.Keys(emulators)), ", ") }

// StartEmulator starts what the value of --sink names. If it names no emulator it is returned unchanged.
func StartEmulator(sink string) (sinkURL string, stop func(), err error) {
	start, ok := emulators[sink]
	if !ok {
		return sink, func() {}, nil
	}
	return start()
}
