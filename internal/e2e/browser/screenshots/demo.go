package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/creack/pty"

	"github.com/ringway/ringway/internal/e2e/browser/terminal"
)

// demoTable runs a demo for some seconds and draws the final state of its table.
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
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 64<<10)
		for {
			n, err := end.Read(buffer)
			mu.Lock()
			_, _ = screen.Write(buffer[:n]) // it never fails
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	select {
	case <-time.After(15 * time.Second): // long enough for a kill and a replacement
	case <-read:
	case <-ctx.Done():
	}
	picture, err := os.Create(filepath.Join(dir, "demo.svg"))
	if err == nil {
		mu.Lock()
		err = errors.Join(screen.SVG(picture, "relay demo"), picture.Close())
		if screen.Unknown > 0 {
			err = errors.Join(err, fmt.Errorf("%d control sequences of the demo are not understood", screen.Unknown))
		}
		mu.Unlock()
	}
	err = errors.Join(err, demo.Process.Signal(os.Interrupt), demo.Wait())
	<-read
	return errors.Join(err, end.Close())
}
