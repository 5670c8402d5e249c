package discovery

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// maxHostsFile bounds what is read of a hosts file.
const maxHostsFile = 1 << 20

// hostsAddrs finds a name in a file of the form of hosts(5). The file is read at
// every call: it is small, and container runtimes rewrite it. A missing file has
// no names.
func hostsAddrs(path, name string) ([]netip.Addr, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the hosts file: %w", err)
	}
	defer file.Close()
	name = strings.TrimSuffix(name, ".")
	var out []netip.Addr
	lines := bufio.NewScanner(io.LimitReader(file, maxHostsFile))
	lines.Buffer(nil, maxHostsFile)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		named := slices.ContainsFunc(fields[1:], func(f string) bool {
			return strings.EqualFold(strings.TrimSuffix(f, "."), name)
		})
		if ip, err := netip.ParseAddr(fields[0]); named && err == nil {
			if ip = ip.Unmap().WithZone(""); !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the hosts file %s: %w", path, err)
	}
	return out, nil
}
