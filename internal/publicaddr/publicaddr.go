// Package publicaddr keeps connections away from addresses that are not of the public internet, for
// sinks whose endpoint a configuration names.
package publicaddr

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"github.com/penstock/penstock"
)

// Error: a host has an address that is not public, so a request could reach a server inside the
// network.
type Error struct {
	Addr netip.Addr
	Kind string // for example "a private address"
}

func (e *Error) Error() string { return fmt.Sprintf("%s is %s", e.Addr, e.Kind) }

// Permitted are the addresses that are allowed in addition to the public internet: every address, or ranges.
type Permitted struct {
	All    bool
	ranges []netip.Prefix
}

// Add permits an address or a range. It reports whether s is one.
func (p *Permitted) Add(s string) bool {
	prefix, err := parsePrefix(strings.TrimSpace(s))
	p.ranges = append(p.ranges, prefix)
	return err == nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("not an address")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	return prefix.Masked(), err
}

// AllowHint shows how to permit an address that a configuration names.
const AllowHint = "if the endpoint is meant to be there, set allow_private: true"

// Endpoint reads the field endpoint of a configuration: the URL of a server in place of a service's. Its error is a
// *penstock.FieldError.
func (p *Permitted) Endpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, &penstock.FieldError{Field: "endpoint", Problem: "is not a URL", Hint: "write http://host:port or https://host"}
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := p.Check(ip); err != nil {
			return nil, &penstock.FieldError{Field: "endpoint", Problem: fmt.Sprintf("has a host that is refused (%v)", err), Hint: AllowHint}
		}
	}
	return u, nil
}

// Control is a net.Dialer's Control. It sees the address that the socket is about to connect to,
// after name resolution, every time. So it does not help an attacker if a name first leads to a
// public address and then to a private one.
func (p *Permitted) Control(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("cannot decide whether %q is a public address", address)
	}
	return p.Check(addr.Addr())
}

// Check returns an *Error unless addr is public or permitted.
func (p *Permitted) Check(addr netip.Addr) error {
	if p.All {
		return nil
	}
	addr = addr.Unmap().WithZone("")
	for _, r := range p.ranges {
		if r.Contains(addr) {
			return nil
		}
	}
	if kind := notPublic(addr); kind != "" {
		return &Error{addr, kind}
	}
	if inner, ok := translated(addr); ok {
		if err := p.Check(inner); err != nil {
			return &Error{addr, "another name for " + err.Error()}
		}
	}
	return nil
}

// special lists the networks that are not the public internet, after the IANA
// registries of special-purpose IPv4 and IPv6 addresses. The first match names
// the kind.
var special = []struct {
	kind   string
	ranges []netip.Prefix
}{
	// Most clouds answer on a link-local address; these are the others.
	{"a cloud's metadata service", prefixes("169.254.169.254/32", "169.254.170.2/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")},
	{"unspecified", prefixes("0.0.0.0/8", "::/128")},
	{"a loopback address", prefixes("127.0.0.0/8", "::1/128")},
	{"a private address", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")},
	{"a link-local address", prefixes("169.254.0.0/16", "fe80::/10")},
	{"an address of carrier-grade NAT", prefixes("100.64.0.0/10")},
	{"a multicast address", prefixes("224.0.0.0/4", "ff00::/8")},
	{"reserved", prefixes("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20")},
}

// The prefixes under which IPv6 holds IPv4 addresses: NAT64 (RFC 6052), with the address in the
// last four bytes, and 6to4 (RFC 3056), with it after the prefix. Local-use NAT64 (64:ff9b:1::/48,
// RFC 8215) may hold it anywhere, and is not part of the public internet anyway.
var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixToV4 = netip.MustParsePrefix("2002::/16")
	global  = netip.MustParsePrefix("2000::/3")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// notPublic names the kind of addr if it is not part of the public internet.
func notPublic(addr netip.Addr) (kind string) {
	for _, s := range special {
		for _, r := range s.ranges {
			if r.Contains(addr) {
				return s.kind
			}
		}
	}
	if addr.Is6() && !global.Contains(addr) && !nat64.Contains(addr) {
		return "reserved"
	}
	return ""
}

// translated returns the IPv4 address that an IPv6 address stands for.
func translated(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToV4.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}
