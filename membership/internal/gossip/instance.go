package gossip

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/ringway/ringway/membership/identity"
)

// InstanceName returns the name of an instance at memberlist: id and epoch.
func InstanceName(id string, epoch uint64) string { return fmt.Sprintf("%s.%d", id, epoch) }

// SplitInstance splits the name of an instance into id and epoch. An id may contain dots, so the
// last one separates the two.
func SplitInstance(name string) (id string, epoch uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || identity.CheckName(name[:dot]) != nil {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(name[dot+1:], 10, 64)
	return name[:dot], epoch, err == nil
}

// AddrPort returns an address of a message as IP:port.
func AddrPort(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}
