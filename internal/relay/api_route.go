package relay

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/http1"
	"github.com/ringway/ringway/internal/proxy/ingress"
)

// showRouteOf answers where the request of a client would go, without the request.
func (r *Relay) showRouteOf(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	asked, err := askedRequest(query.Get("url"), query["header"])
	if err != nil {
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	requests := &r.tuned.Load().Requests
	naming := requests.Name(asked)
	a := api.Route{Service: naming.Service, Relay: r.cfg.Membership.ID, Role: "none"}
	if s, known := r.Routes.Service(naming.Service); known {
		matching := *requests
		matching.Routes = requests.Routes[max(naming.Route, 0) : naming.Route+1] // one, or none
		a = r.routeOf(s, requests.KeyOf(asked, naming.Service), &matching)
	}
	a.Naming = &api.Naming{By: naming.By}
	if naming.By == ingress.NamedByRoute {
		a.Naming.Route, a.Naming.Text = naming.Route+1, routeText(requests.Routes[naming.Route])
	}
	process.WriteJSON(w, http.StatusOK, a)
}

// askedRequest returns a client's request with this URL and these lines of a head.
func askedRequest(address string, lines []string) (*http.Request, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%.80q is not the URL of a request: write http://HOST/PATH", address)
	}
	host, err := ingress.URLHost(u.Host)
	if err != nil {
		return nil, fmt.Errorf("the host of %.80q is %w", address, err)
	}
	asked := &http.Request{Method: http.MethodGet, URL: u, Host: host, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); !found || !http1.ValidToken(name) || !http1.ValidValue(value) {
			return nil, fmt.Errorf("%.80q is not a header: write 'NAME: VALUE'", line)
		}
		if strings.EqualFold(name, "Host") {
			asked.Host = value
			continue
		}
		asked.Header.Add(name, value)
	}
	if !http1.ValidHost(asked.Host) { // such a request gets 400
		return nil, fmt.Errorf("%.80q is not the host of a request: write a name such as shop.example.com, with its labels xn--… if it is internationalized, or an IP address", asked.Host)
	}
	return asked, nil
}

// routeText returns a route as it is written in the file of the relay, on one line.
func routeText(route ingress.Route) string {
	var node yaml.Node
	if err := node.Encode(route); err != nil {
		return ""
	}
	node.Style = yaml.FlowStyle
	text, _ := yaml.Marshal(&node)
	return strings.TrimSpace(string(text))
}
