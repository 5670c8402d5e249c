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
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/traffic"
	"github.com/ringway/ringway/internal/worker"
)

const (
	failing, draining = "worker-15", "worker-07"
	// settling is the time until every moving average has its samples.
	settling = 8 * time.Second
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
	stubs := map[string]*traffic.Stub{}
	for i := range 24 {
		w := fleet.WorkerConfig{ID: fmt.Sprintf("worker-%02d", i+1), Services: []string{"checkout"}, Change: func(s *worker.Settings) { s.Datacenter = "ams" }}
		if i%2 == 0 {
			w.Services = append(w.Services, "search")
		}
		if i%3 == 0 {
			w.Services = append(w.Services, "media")
		}
		stubs[w.ID] = traffic.NewStub(traffic.StubConfig{Name: w.ID, Median: 25 * time.Millisecond, Stream: uint64(i)})
		w.Handler = stubs[w.ID]
		if err := f.StartWorker(w); err != nil {
			return err
		}
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
		traffic.Load(loading, traffic.LoadConfig{Targets: ingresses, Services: []string{"checkout", "checkout", "search", "media"}, Rate: 600, Random: rand.New(rand.NewPCG(1, 1))})
	})
	if err := f.Drain(draining); err != nil {
		return err
	}
	stubs[failing].Fail()
	for name, dark := range map[string]bool{"status-page-light": false, "status-page-dark": true} {
		if err := picture(chromium, "http://"+f.Relay("relay-2").AdminAddr()+"/?service=checkout", filepath.Join(dir, name+".png"), dark); err != nil {
			return err
		}
	}
	return nil
}

func picture(chromium *browser.Browser, address, file string, dark bool) (err error) {
	tab, err := chromium.Tab(browser.TabConfig{Width: 1400, Height: 900, Scale: 1.25, Dark: dark, Still: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tab.Close()) }()
	if err := tab.Go(address); err != nil {
		return err
	}
	time.Sleep(settling)
	for what, condition := range map[string]string{
		"the page is live":   `document.documentElement.dataset.live === "on"`,
		"one worker drains":  `document.querySelector("#ring g.s-draining")`,
		"one worker is out":  `document.querySelector("#peers tr[data-state=evicted]")`,
		"requests are there": `[...document.querySelectorAll("#peers td:nth-of-type(6)")].some(c => c.textContent !== "0")`,
	} {
		if err := tab.Await(what, condition); err != nil {
			return err
		}
	}
	png, err := tab.Picture()
	if err != nil {
		return err
	}
	return os.WriteFile(file, png, 0o644)
}
