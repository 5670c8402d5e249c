package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/e2e/browser"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
)

// statusPages draws the page of one relay of a fleet under load, in light and dark.
func statusPages(ctx context.Context, dir string) (err error) {
	f := fleet.New(fleet.Config{Cluster: "shop", Environment: "production", Insecure: true})
	defer func() { err = errors.Join(err, f.Stop()) }()
	var ingresses []string
	for i := range 6 {
		id := fmt.Sprintf("relay-%d", i+1)
		if err := f.StartRelay(id, func(s *relay.Settings) { s.Datacenter, s.Links.Grace = "ams", 5*time.Second }); err != nil {
			return err
		}
		ingresses = append(ingresses, "http://"+f.Relay(id).IngressAddr())
	}
	for i := range 24 {
		id := fmt.Sprintf("worker-%02d", i+1)
		stub := loadgen.NewStub(loadgen.StubConfig{Name: id, Median: 25 * time.Millisecond, Stream: uint64(i)})
		w := fleet.WorkerConfig{ID: id, Handler: stub, Services: []string{"checkout"}, Change: func(s *worker.Settings) { s.Datacenter = "ams" }}
		if i%2 == 0 {
			w.Services = append(w.Services, "search")
		}
		if i%3 == 0 {
			w.Services = append(w.Services, "media")
		}
		if err := f.StartWorker(w); err != nil {
			return err
		}
		if i == 14 {
			stub.Fail()
		}
	}
	if err := f.Drain("worker-07"); err != nil {
		return err
	}
	chromium, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chromium.Close()) }()

	loading, enough := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer enough()
	load.Go(func() {
		loadgen.Load(loading, loadgen.LoadConfig{Targets: ingresses, Services: []string{"checkout", "checkout", "search", "media"}, Rate: 600, Random: rand.New(rand.NewPCG(1, 1))})
	})
	address := "http://" + f.Relay("relay-2").AdminAddr() + "/?service=checkout"
	for name, cfg := range map[string]browser.TabConfig{
		"status-page-light.png": {Width: 1400, Height: 900, Scale: 1.25, Still: true},
		"status-page-dark.png":  {Width: 1400, Height: 900, Scale: 1.25, Still: true, Dark: true},
		"status-page-phone.png": {Width: 390, Height: 844, Scale: 1.25, Still: true},
	} {
		tab, err := chromium.Tab(cfg)
		if err == nil {
			err = errors.Join(statusPage(tab, address, filepath.Join(dir, name)), tab.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func statusPage(tab *browser.Tab, address, file string) error {
	if err := tab.Go(address); err != nil {
		return err
	}
	time.Sleep(8 * time.Second) // until every moving average has its samples
	err := tab.Await("a live page with load, a draining and an evicted worker", `document.documentElement.dataset.live === "on"
		&& document.querySelector("#ring g.s-draining") && document.querySelector("#peers tr[data-state=evicted]")
		&& [...document.querySelectorAll("#peers td:nth-of-type(5)")].some(c => c.textContent !== "0")`)
	if err != nil {
		return err
	}
	png, err := tab.Picture()
	if err != nil {
		return err
	}
	return os.WriteFile(file, png, 0o644)
}
