package membership

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/ringway/ringway/membership/identity"
)

// instanceName returns the name of an instance at memberlist: id and epoch.
func instanceName(id string, epoch uint64) string { return fmt.Sprintf("%s.%d", id, epoch) }

// splitInstance splits the name of an instance into id and epoch.
func splitInstance(name string) (id string, epoch uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || identity.CheckName(name[:dot]) != nil {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(name[dot+1:], 10, 64)
	return name[:dot], epoch, err == nil
}

func addrPort(ip net.IP, port uint16) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}
