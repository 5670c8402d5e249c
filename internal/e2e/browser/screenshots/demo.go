package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"

	"github.com/ringway/ringway/internal/e2e/browser/terminal"
)

// replaced is how the row of a killed worker ends that has a successor, and demoLimit how
// long the demo may take until there is one.
const (
	replaced  = "active again"
	demoLimit = 2 * time.Minute
)

// demoTable runs a demo until a killed worker was replaced, and draws its table.
func demoTable(ctx context.Context, dir, binaries string) error {
	relay := filepath.Join(binaries, "relay")
	demo := exec.CommandContext(ctx, relay, "demo", "--seed", "7", "--kill-every", "6s")
	demo.Cancel = func() error { return demo.Process.Signal(os.Interrupt) }
	demo.WaitDelay = 20 * time.Second
	end, err := pty.StartWithSize(demo, &pty.Winsize{Rows: 42, Cols: 124})
	if err != nil {
		return fmt.Errorf("run %s demo: %w", relay, err)
	}
	var mu sync.Mutex
	var screen terminal.Screen
	read, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		seen := false
		buffer := make([]byte, 64<<10)
		for {
			n, err := end.Read(buffer)
			mu.Lock()
			_, _ = screen.Write(buffer[:n]) // it never fails
			now := slices.ContainsFunc(screen.Lines(), func(l string) bool { return strings.HasSuffix(l, replaced) })
			mu.Unlock()
			if now && !seen {
				seen = true
				close(shown)
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-shown:
	case <-time.After(demoLimit):
		err = fmt.Errorf("the demo shows no worker that was killed and replaced within %s", demoLimit)
	case <-read:
	case <-ctx.Done():
	}
	if picture, created := os.Create(filepath.Join(dir, "demo.svg")); created != nil {
		err = errors.Join(err, created)
	} else {
		mu.Lock()
		err = errors.Join(err, screen.SVG(picture, "relay demo"), picture.Close())
		if screen.Unknown > 0 {
			err = errors.Join(err, fmt.Errorf("%d control sequences of the demo are not understood", screen.Unknown))
		}
		mu.Unlock()
	}
	err = errors.Join(err, demo.Process.Signal(os.Interrupt), demo.Wait())
	<-read
	return errors.Join(err, end.Close())
}
