package main

import "strings"

// The outbox and what is made for it. Segments are small, so that the ring turns
// and is reclaimed all the time.
const outbox = "shop"

// Topics. The brokers have nowhere to put the never ones until the run is over,
// and the later ones now and then.
const (
	topicPlaced      = "shop.order.placed"
	topicSent        = "shop.order.sent"
	topicPaid        = "shop.audit.paid"
	topicNeverRabbit = "shop.never.rabbit"
	topicNeverNATS   = "shop.never.nats"
	topicLaterRabbit = "shop.later.rabbit"
	topicLaterNATS   = "shop.later.nats"
)

var poisoned = []string{topicNeverRabbit, topicNeverNATS, topicLaterRabbit, topicLaterNATS}

// route is one subscription of the outbox.
type route struct {
	name   string
	broker string
	// chooses returns which topics its filter lets through.
	chooses func(topic string) bool
	// refusable says what its broker may have refused, so that a dead letter of it
	// is right.
	refusable func(topic string) bool
}

// deduplicated is the subscription whose broker drops ids that it has seen.
const deduplicated = "audit"

func everything(string) bool { return true }
func nothing(string) bool    { return false }

var routes = []route{
	{"to-rabbitmq", "rabbitmq", everything, func(t string) bool { return t == topicNeverRabbit || t == topicLaterRabbit }},
	{"to-nats", "nats", everything, func(t string) bool { return t == topicNeverNATS || t == topicLaterNATS }},
	{deduplicated, "nats", func(t string) bool { return strings.HasPrefix(t, "shop.audit.") }, nothing},
}

// routeNames are the subscriptions that send to a broker, or all and the jobs.
func routeNames(broker string) (names []string) {
	for _, r := range routes {
		if broker == "" || r.broker == broker {
			names = append(names, r.name)
		}
	}
	if broker == "" {
		names = append(names, jobsRoute)
	}
	return names
}
