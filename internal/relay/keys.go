package relay

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/membership"
)

// maxKeysBody bounds a request to change keys in bytes; a key has 44 characters.
const maxKeysBody = 1024

// listKeys and changeKeys act on the keyrings of the whole cluster.
func (r *Relay) listKeys(w http.ResponseWriter, req *http.Request) {
	results, err := r.members.Keys(req.Context(), membership.ListKeys, "")
	answerKeys(w, results, err)
}

func (r *Relay) changeKeys(w http.ResponseWriter, req *http.Request) {
	change, err := decodeKeys(req.Body)
	if err != nil {
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	results, err := r.members.Keys(req.Context(), change.Operation, change.Argument)
	answerKeys(w, results, err)
}

// decodeKeys reads a request. Its errors never contain the text, which may hold a key.
func decodeKeys(body io.Reader) (change api.KeysRequest, err error) {
	d := json.NewDecoder(io.LimitReader(body, maxKeysBody))
	d.DisallowUnknownFields()
	if d.Decode(&change) != nil {
		return api.KeysRequest{}, errors.New(`the body is not {"operation": …, "argument": …}`)
	}
	switch change.Operation {
	case membership.InstallKey, membership.UseKey, membership.RemoveKey:
		return change, nil
	}
	return api.KeysRequest{}, errors.New("operation: allowed are install, use, remove")
}

func answerKeys(w http.ResponseWriter, results []membership.KeyResult, err error) {
	switch {
	case err == nil:
		process.WriteJSON(w, http.StatusOK, api.Keys{Members: results})
	case errors.Is(err, membership.ErrNoKeyring):
		process.WriteError(w, http.StatusConflict, err.Error())
	case len(results) == 0: // nothing was tried
		process.WriteError(w, http.StatusBadRequest, err.Error())
	default:
		process.WriteJSON(w, http.StatusBadGateway, api.Keys{Members: results, Error: err.Error()})
	}
}

// proxyNetwork is the rule of a setting.
var proxyNetwork = settings.Rule[string]{
	Allowed: "networks such as 10.0.0.0/8 or 2001:db8::/32",
	Holds: func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err == nil && !network.Addr().Is4In6() // addresses are compared as IPv4
	},
}

// parseNetworks parses the networks of a setting with the rule proxyNetwork, which refuses others.
func parseNetworks(items []string) (networks []netip.Prefix, _ []settings.Problem) {
	for _, text := range items {
		if network, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, network.Masked())
		}
	}
	return networks, nil
}

// clientShare is how many requests one client may have in flight: a number, a percentage of the limit
// of a service, or a share of what is free. Zero means no limit.
type clientShare struct {
	n       int
	percent bool
	free    bool // n and percent do not count
}

// of returns the number for this limit of a service.
func (s clientShare) of(maxInFlight int) int {
	switch {
	case s.free:
		return ingress.ShareOfFree
	case !s.percent:
		return s.n
	}
	return max(1, int(int64(maxInFlight)*int64(s.n)/100))
}

var clientShares = settings.Kind[clientShare]{
	Name: "share", Want: "auto, a whole number, or a percentage such as 10%; 0 for no limit",
	Pattern: `^\s*(auto|\+?[0-9]+%?)\s*$`,
	Parse: func(text string) (clientShare, error) {
		if text = strings.TrimSpace(text); text == autoCount {
			return clientShare{free: true}, nil
		}
		digits, percent := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(digits)
		switch {
		case err != nil || n < 0:
			return clientShare{}, errors.New("neither auto nor a number nor a percentage")
		case percent && (n < 1 || n > 100):
			return clientShare{}, errors.New("not from 1% to 100%")
		}
		return clientShare{n: n, percent: percent}, nil
	},
	Format: func(s clientShare) string {
		switch {
		case s.free:
			return autoCount
		case s.percent:
			return strconv.Itoa(s.n) + "%"
		}
		return strconv.Itoa(s.n)
	},
}
