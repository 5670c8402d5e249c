package xds

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusters "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ringway/ringway/affinity"
)

// The page is read by operators and not by a compiler.
func TestTheBootstrapOfThePageIsOneThatEnvoyReads(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("the page has no bootstrap")
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	config := &bootstrap.Bootstrap{}
	if err := protojson.Unmarshal(data, config); err != nil { // refuses unknown fields, and types of Any
		t.Fatal(err)
	}
	if err := config.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	if err := checkClient(affinity.Relay{ID: config.GetNode().GetId()}); err != nil {
		t.Error(err)
	}
	services := 0
	for _, c := range config.GetStaticResources().GetClusters() {
		if c.GetType() != clusters.Cluster_EDS {
			continue
		}
		services++
		if err := affinity.ValidateService(c.GetEdsClusterConfig().GetServiceName()); err != nil {
			t.Error(err)
		}
	}
	if services != 1 || config.GetDynamicResources().GetAdsConfig() == nil {
		t.Errorf("%d services by EDS, ADS by %v", services, config.GetDynamicResources())
	}
}
