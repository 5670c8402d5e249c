package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/miekg/dns"

	"github.com/ringway/ringway/membership/discovery"
	"github.com/ringway/ringway/selection/client"
)

// A caller without a relay can answer from its own cache, for example.
func ExampleClient_RoundTrip() {
	ringway, err := client.New(client.Config{Seeds: []string{"127.0.0.1:1"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = ringway.Run(ctx) // it has ended before the first request

	_, err = (&http.Client{Transport: ringway}).Get("http://billing/invoices/7")
	fmt.Println(errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrOverloaded))
	// Output: true false
}

// A caller that finds relays by DNS, and does not notice when one of them goes.
func Example() {
	fleet := newFleet(3) // relays on loopback, and a DNS server that lists them
	defer fleet.close()
	resolver, err := discovery.NewResolver(discovery.ResolverConfig{Servers: []string{fleet.dns.PacketConn.LocalAddr().String()}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The caller. In production it needs no Resolver.
	ringway, err := client.New(client.Config{Seeds: []string{"srv+_relay._tcp.example.internal"}, Resolver: resolver})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = ringway.Run(ctx) }()
	defer func() { cancel(); <-done }()

	web := &http.Client{Transport: ringway}
	for i := range 6 {
		if i == 2 {
			_ = fleet.relays[0].Close() // one dies
		}
		resp, err := web.Get("http://billing/invoices/7")
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Println(string(body))
	}
	// Output:
	// billing answers for /invoices/7
	// billing answers for /invoices/7
	// billing answers for /invoices/7
	// billing answers for /invoices/7
	// billing answers for /invoices/7
	// billing answers for /invoices/7
}

// fleet is relays and the DNS server that lists them.
type fleet struct {
	dns    *dns.Server
	relays []*http.Server
	ports  []int
	serve  sync.WaitGroup
}

func newFleet(n int) *fleet {
	f := &fleet{}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		relay := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s answers for %s", r.Header.Get("Ringway-Service"), r.URL.Path)
		})}
		f.relays = append(f.relays, relay)
		f.ports = append(f.ports, listener.Addr().(*net.TCPAddr).Port)
		f.serve.Go(func() { _ = relay.Serve(listener) })
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	up := make(chan struct{})
	f.dns = &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(f.answer)}
	f.serve.Go(func() { _ = f.dns.ActivateAndServe() })
	<-up
	return f
}

func (f *fleet) answer(w dns.ResponseWriter, question *dns.Msg) {
	reply := new(dns.Msg).SetReply(question)
	switch q := question.Question[0]; q.Qtype {
	case dns.TypeSRV:
		for _, port := range f.ports {
			rr, _ := dns.NewRR(fmt.Sprintf("%s 30 IN SRV 0 0 %d relay.example.internal.", q.Name, port))
			reply.Answer = append(reply.Answer, rr)
		}
	case dns.TypeA:
		rr, _ := dns.NewRR(q.Name + " 30 IN A 127.0.0.1")
		reply.Answer = append(reply.Answer, rr)
	}
	_ = w.WriteMsg(reply)
}

func (f *fleet) close() {
	for _, relay := range f.relays {
		_ = relay.Close()
	}
	_ = f.dns.Shutdown()
	f.serve.Wait()
}
