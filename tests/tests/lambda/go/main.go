package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
)

type Event struct {
	Name string `json:"name"`
}

type Said struct {
	Greeting string `json:"greeting"`
	Id       string `json:"id"`
	Pid      int    `json:"pid"`
	Left     int64  `json:"left"`
}

func handle(ctx context.Context, event Event) (Said, error) {
	if event.Name == "" {
		return Said{}, errors.New("who is it?")
	}
	if event.Name == "panic" {
		panic("as asked")
	}
	about, _ := lambdacontext.FromContext(ctx)
	until, _ := ctx.Deadline()
	return Said{"Hello " + event.Name, about.AwsRequestID, os.Getpid(), time.Until(until).Milliseconds()}, nil
}

func main() { lambda.Start(handle) }
