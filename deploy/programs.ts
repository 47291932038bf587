import { once } from 'node:events'
import { signerDoubleOptions } from './signer-double/cli-options.ts'
import { type Command, action, createCommand } from './cli/command.ts'
import { integer } from './cli/options.ts'
import { leanOptions, replaceProcess } from './cli/replace-process.ts'

// These commands are whole programs. Each is imported when it runs, because it loads much code.

const allInOne = new URL('./all-in-one/main.ts', import.meta.url)

export const start = createCommand('start', {
  summary: 'runs the whole service in one process (npm start)',
  examples: ['./tollgate start', 'PLATFORM_PORT=9080 ./tollgate start'],
  action: action({
    text:
      'Runs core, gateway and sidecar in this process. Settings come from the environment; `tollgate config` ' +
      'lists them.',
    run: async () => {
      await replaceProcess({ file: allInOne, nodeOptions: leanOptions })
    },
  }),
})

/** A separate process of the service. It reports in its log, and ends by a signal. */
const processCommand = (
  name: string,
  { text, example }: { text: string; example: string },
  load: () => Promise<unknown>,
): Command =>
  createCommand(name, {
    summary: `runs ${name} in a process of its own`,
    examples: [example],
    actions: {
      '': action({
        text,
        run: async () => {
          await load()
          await once(process, 'exit')
        },
      }),
    },
  })

export const core = processCommand(
  'core',
  {
    text:
      'Runs core: gRPC on CORE_PORT, metrics and health on CORE_ADMIN_PORT. It needs DATABASE_URL, KEY_ENCRYPTION_KEY, ' +
      'SECRET_PEPPERS, PUBLIC_URL and the tokens of its callers, and REDIS_URL where several processes run. Any number may run.',
    example: 'set -a; . ./tollgate.env; set +a; ./tollgate core',
  },
  () => import('../core/main.ts'),
)

export const gateway = processCommand(
  'gateway',
  {
    text:
      'Runs the gateway: REST, OpenID Connect and pages on PLATFORM_PORT, the builder API on BUILDER_PORT, metrics and health ' +
      'on GATEWAY_ADMIN_PORT. It needs CORE_TARGET, CORE_TOKEN_GATEWAY and PUBLIC_URL. Any number may run.',
    example: 'set -a; . ./tollgate.env; set +a; ./tollgate gateway',
  },
  () => import('../gateway/main.ts'),
)

export const sidecar = processCommand(
  'sidecar',
  {
    text:
      'Runs a sidecar: decisions for signers on SIDECAR_PORT, metrics and health on SIDECAR_ADMIN_PORT. It needs ' +
      'CORE_TARGET, CORE_TOKEN_SIDECAR, WEBHOOK_SECRET and a SPOOL_DIR of its own.',
    example: 'WEBHOOK_SECRET=$SIDECAR_SECRET SPOOL_DIR=./spool ./tollgate sidecar',
  },
  () => import('../sidecar/main.ts'),
)

export const demo = createCommand('demo', {
  summary: 'plays the main flow against a running service (npm run demo)',
  examples: ['./tollgate demo', './tollgate demo --pause 0'],
  actions: {
    '': action({
      text:
        'Plays the main flow against the all-in-one service of this folder. It creates a user; a signer double, ' +
        'which uses the real protocol, requests a decision before each payment; the Starter allowance is used up; ' +
        'the next call is refused; a credit allows more calls. Then a new owner connects an account of the simulated ' +
        'payment processor and sells a plan to a user, who spends on credit, is invoiced, is past due when the card is ' +
        'declined, and pays with another card; the month ends by the test clock; a payment is refunded; a local ' +
        'endpoint receives the webhooks. At the end it compares usage, balances, tickets, invoices and payments, to ' +
        'the last digit, with the signer and the processor, and verifies the books. Exits with 1 when a figure differs.',
      options: {
        pauseMs: integer('MS', {
          flag: 'pause',
          from: 0,
          to: 60_000,
          fallback: 120,
          meaning: 'Milliseconds between two payments; 120 by default.',
        }),
      },
      run: async (options) => (await import('./demo/demo.ts')).runDemo(options),
      json: () => undefined,
      isFailure: (isRight) => !isRight,
    }),
  },
})

export const signerDouble = createCommand('signer-double', {
  summary: 'plays a remote signer: requests decisions, signs, emits events',
  examples: [
    'SIGNER_WEBHOOK_HEADERS="Authorization:Bearer $SECRET" ./tollgate signer-double --port 8936 --webhook-url http://127.0.0.1:8090/authorize',
  ],
  action: action({
    text:
      "Imitates go-livepeer's remote signer: calls the authorization webhook before every payment and emits " +
      'create_signed_ticket events. It holds no keys and spends no money. It runs until SIGINT or SIGTERM.',
    options: signerDoubleOptions,
    run: async (flags) => (await import('./signer-double/cli.ts')).runSignerDouble(flags),
  }),
})
