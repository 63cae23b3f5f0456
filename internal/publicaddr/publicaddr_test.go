package publicaddr_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/publicaddr"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		addr string
		kind string // empty: public
	}{
		{"8.8.8.8", ""}, {"93.184.216.34", ""}, {"172.15.255.255", ""}, {"172.32.0.0", ""}, {"100.63.255.255", ""}, {"100.128.0.0", ""},
		{"2606:2800:220:1::1", ""}, {"64:ff9b::808:808", ""}, {"::ffff:8.8.8.8", ""}, {"2002:808:808::1", ""},

		{"0.0.0.0", "unspecified"}, {"0.1.2.3", "unspecified"}, {"::", "unspecified"}, {"::ffff:0.0.0.0", "unspecified"},
		{"127.0.0.1", "a loopback address"}, {"127.255.255.254", "a loopback address"}, {"::1", "a loopback address"}, {"::ffff:127.0.0.1", "a loopback address"},
		{"10.0.0.1", "a private address"}, {"172.16.0.1", "a private address"}, {"172.31.255.255", "a private address"}, {"192.168.1.1", "a private address"},
		{"::ffff:192.168.1.1", "a private address"}, {"fc00::1", "a private address"}, {"fdff::1", "a private address"}, {"fec0::1", "a private address"},
		{"169.254.0.1", "a link-local address"}, {"fe80::1", "a link-local address"}, {"fe80::1%eth0", "a link-local address"}, {"febf::1", "a link-local address"},
		{"169.254.169.254", "a cloud's metadata service"}, {"::ffff:169.254.169.254", "a cloud's metadata service"}, {"168.63.129.16", "a cloud's metadata service"},
		{"100.100.100.200", "a cloud's metadata service"}, {"fd00:ec2::254", "a cloud's metadata service"}, {"fd20:ce::254", "a cloud's metadata service"},
		{"100.64.0.1", "an address of carrier-grade NAT"}, {"100.127.255.255", "an address of carrier-grade NAT"},
		{"224.0.0.1", "a multicast address"}, {"239.255.255.250", "a multicast address"}, {"ff02::1", "a multicast address"},
		{"192.0.0.8", "reserved"}, {"192.0.2.1", "reserved"}, {"198.18.0.1", "reserved"}, {"198.51.100.1", "reserved"}, {"203.0.113.1", "reserved"},
		{"240.0.0.1", "reserved"}, {"255.255.255.255", "reserved"}, {"2001:db8::1", "reserved"}, {"3fff::1", "reserved"},
		{"::7f00:1", "reserved"},                             // IPv4-compatible
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"}, // Teredo
		{"64:ff9b:1::a00:1", "reserved"},                     // local-use NAT64
		{"5f00::1", "reserved"}, {"100::1", "reserved"}, {"4000::1", "reserved"},
		{"64:ff9b::7f00:1", "another name for 127.0.0.1 is a loopback address"},
		{"64:ff9b::a9fe:a9fe", "another name for 169.254.169.254 is a cloud's metadata service"},
		{"64:ff9b::a00:1", "another name for 10.0.0.1 is a private address"},
		{"2002:7f00:1::", "another name for 127.0.0.1 is a loopback address"},
		{"2002:c0a8:101::1", "another name for 192.168.1.1 is a private address"},
	} {
		addr := netip.MustParseAddr(c.addr)
		kind := ""
		var refused *publicaddr.Error
		if err := (&publicaddr.Permitted{}).Check(addr); errors.As(err, &refused) {
			kind = refused.Kind
		} else if err != nil {
			t.Errorf("%s: %v", c.addr, err)
		}
		if kind != c.kind {
			t.Errorf("%s is %q, want %q", c.addr, kind, c.kind)
		}
		if err := (&publicaddr.Permitted{All: true}).Check(addr); err != nil {
			t.Errorf("with allow_private: %v", err)
		}
	}
}
