package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/e2e/browser"
)

const (
	failing, draining = "worker-15", "worker-07"
	// settling is the time until every moving average has its samples.
	settling = 8 * time.Second
)

// statusPages draws the page of one relay of a fleet under load, in light and dark.
func statusPages(ctx context.Context, dir string) (err error) {
	var relays []browser.RelayConfig
	for i := range 6 {
		relays = append(relays, browser.RelayConfig{ID: fmt.Sprintf("relay-%d", i+1), Datacenter: "ams"})
	}
	var workers []browser.WorkerConfig
	for i := range 24 {
		w := browser.WorkerConfig{ID: fmt.Sprintf("worker-%02d", i+1), Datacenter: "ams", Services: []string{"checkout"}}
		if i%2 == 0 {
			w.Services = append(w.Services, "search")
		}
		if i%3 == 0 {
			w.Services = append(w.Services, "media")
		}
		workers = append(workers, w)
	}
	fleet, err := browser.StartFleet(relays, workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
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
		browser.Load(loading, browser.LoadConfig{Targets: fleet.Ingresses(), Services: []string{"checkout", "checkout", "search", "media"}, PerSecond: 600})
	})
	if err := fleet.Drain(ctx, draining); err != nil {
		return err
	}
	fleet.Fail(failing, true)
	for name, dark := range map[string]bool{"status-page-light": false, "status-page-dark": true} {
		if err := picture(chromium, fleet.RelayURL("relay-2")+"?service=checkout", filepath.Join(dir, name+".png"), dark); err != nil {
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
		"requests are there": `[...document.querySelectorAll("#peers td:nth-of-type(5)")].some(c => c.textContent !== "0")`,
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
