// Simulates a signer from the webhook's point of view: concurrent payments, each as soon as the
// previous one is answered. Each makes one call with a new http.Client on the default transport,
// which keeps two idle connections per host. One verified and three new signatures represent the
// signer's other work.
package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type answer struct {
	Status int    `json:"status"`
	AuthID string `json:"auth_id"`
}

func main() {
	url, secret, body := os.Args[1], os.Args[2], []byte(os.Args[3])
	seconds, _ := strconv.ParseFloat(os.Args[4], 64)
	atATime, _ := strconv.Atoi(os.Args[5])
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	stopOn(err)
	var payments atomic.Int64
	var workers sync.WaitGroup
	started := time.Now()
	until := started.Add(time.Duration(seconds * float64(time.Second)))
	for range atATime {
		workers.Go(func() {
			for time.Now().Before(until) {
				pay(url, secret, body, key)
				payments.Add(1)
			}
		})
	}
	workers.Wait()
	fmt.Printf("%f\n", float64(payments.Load())/time.Since(started).Seconds())
}

func pay(url, secret string, body []byte, key *ecdsa.PrivateKey) {
	digest := sha256.Sum256(body)
	state, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	stopOn(err)
	if !ecdsa.VerifyASN1(&key.PublicKey, digest[:], state) {
		panic("a signature that does not hold")
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	stopOn(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+secret)
	client := &http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	stopOn(err)
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	stopOn(err)
	var decision answer
	stopOn(json.Unmarshal(text, &decision))
	if decision.Status != http.StatusOK {
		panic(string(text))
	}
	for range 2 {
		_, err = ecdsa.SignASN1(rand.Reader, key, digest[:])
		stopOn(err)
	}
}

func stopOn(err error) {
	if err != nil {
		panic(err)
	}
}
