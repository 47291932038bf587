import type { Help } from '../cli/help.ts'

export const signerDoubleHelp: Help = {
  usages: [
    {
      syntax: 'tollgate signer-double [options]',
      text:
        "Imitates go-livepeer's remote signer: calls the authorization webhook before every payment and emits " +
        'create_signed_ticket events. It holds no keys and spends no money. It runs until SIGINT or SIGTERM.',
    },
  ],
  options: [
    {
      title: 'Server',
      options: [
        ['--port <n>', 'Port of 127.0.0.1 to listen on, 0 for any; 8936 by default.'],
        ['--mode <mode>', 'go-livepeer, go-v0.8.11 or node; go-livepeer by default.'],
        ['--webhook-url <url>', 'The authorization webhook; without it every payment is allowed.'],
        [
          '--webhook-headers <headers>',
          'Headers for the webhook: "Name:value,Name2:value2" (no comma in a value); better in SIGNER_WEBHOOK_HEADERS, which no other account can read.',
        ],
        [
          '--utc-offset=<offset>',
          'Time zone of webhook states, such as -07:30; +00:00 by default.',
        ],
      ],
    },
    {
      title: 'Tickets',
      options: [
        ['--ev <wei>', 'Expected value of one ticket; 100000000000 by default.'],
        ['--price <wei>', "The orchestrator's price per unit; 100000000000 by default."],
        [
          '--pixels-per-unit <n>',
          'Units that the price buys; by default the pixels of a second for lv2v, 1000000 for "", else 1.',
        ],
        ['--type <type>', 'Type of driven sessions: live, lv2v, fixed or ""; live by default.'],
      ],
    },
    {
      title: 'Destinations of events (any number)',
      options: [
        ['--kafka <brokers>', 'Kafka brokers, as a comma-separated list of host:port.'],
        ['--topic <name>', 'Kafka topic; livepeer-gateway-events by default.'],
        ['--direct-url <url>', 'A sidecar that accepts POST /events.'],
        [
          '--direct-secret <secret>',
          "The sidecar's webhook secret; better in SIGNER_DIRECT_SECRET.",
        ],
        ['--file <path>', 'A file to which envelopes are appended as NDJSON.'],
      ],
    },
    {
      title: 'Faults',
      options: [
        ['--drop <p>', 'Probability from 0 to 1 that an event is dropped; 0 by default.'],
        ['--duplicate <p>', 'Probability from 0 to 1 that an event is sent twice; 0 by default.'],
        ['--reorder <p>', 'Probability from 0 to 1 that two events change places; 0 by default.'],
        ['--delay-ms <n>', 'Longest random delay of an event, 0 to 2000; 0 by default.'],
        ['--seed <n>', 'Seed of the faults, to repeat them; 1 by default.'],
      ],
    },
    {
      title: 'Load',
      options: [
        ['--drive <n>', 'Also plays this many gateway sessions against itself, 1 to 1000.'],
        ['--interval <seconds>', 'Pause between two calls of a session; 5 by default.'],
        [
          '--calls <n>',
          'Number of calls of each session, after which it ends; unlimited by default.',
        ],
        [
          '--authorization <value>',
          'Authorization header of the sessions, such as "Bearer sk_..."; better in SIGNER_AUTHORIZATION.',
        ],
        ['--app <name>', 'App of the sessions; empty by default.'],
      ],
    },
    { title: 'Other', options: [['--help', 'Prints this text.']] },
  ],
  examples: [
    'SIGNER_WEBHOOK_HEADERS="Authorization:Bearer $SECRET" ./tollgate signer-double --port 8936 --webhook-url http://127.0.0.1:8090/authorize',
  ],
}
