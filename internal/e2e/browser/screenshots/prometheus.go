package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// prometheusAddr is on a separate loopback address.
const prometheusAddr = "127.0.1.200:9090"

// startPrometheus starts a Prometheus that scrapes a fleet every second.
func startPrometheus(ctx context.Context, dir string, fleet *processes) (*exec.Cmd, error) {
	list := func(addresses []string) string { return `["` + strings.Join(addresses, `", "`) + `"]` }
	config := fmt.Sprintf(`global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: ringway-relay, static_configs: [{targets: %s}]}
  - {job_name: ringway-worker, static_configs: [{targets: %s}]}
`, list(fleet.relayAdmins), list(fleet.workerAdmins))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+prometheusAddr, "--log.level=error")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start prometheus: %w", err)
	}
	return c, nil
}

// series is one line of a chart.
type series struct {
	Labels map[string]string
	Times  []float64 // Unix seconds
	Values []float64
}

// query returns the values of an expression over the last window.
func query(ctx context.Context, expression string, window time.Duration) ([]series, error) {
	now := time.Now()
	values := url.Values{"query": {expression}, "start": {stamp(now.Add(-window))}, "end": {stamp(now)}, "step": {"1"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+prometheusAddr+"/api/v1/query_range?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		return nil, fmt.Errorf("%s: %s", expression, body.Error)
	}
	var out []series
	for _, r := range body.Data.Result {
		s := series{Labels: r.Metric}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", expression, err)
			}
			s.Times, s.Values = append(s.Times, at), append(s.Values, value)
		}
		out = append(out, s)
	}
	return out, nil
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
