// A caller that knows where relays are and names services as hosts. It keeps
// connections to three relays and two in reserve.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/ringway/ringway/selection/pool/client"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ringway, err := client.New(client.Config{Seeds: []string{"127.0.0.1:7410"}})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(ringway.Run(ctx)) }()

	web := &http.Client{Transport: ringway, Timeout: 10 * time.Second}
	req, err := http.NewRequestWithContext(client.WithKey(ctx, "alice"), http.MethodGet, "http://echo/", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := web.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close() // until then the request holds its place on a connection
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s", resp.Status, body)
}
