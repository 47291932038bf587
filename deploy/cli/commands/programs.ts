import { once } from 'node:events'
import { signerDoubleHelp } from '../../signer-double/help.ts'
import { type Command, UsageError } from '../command.ts'
import { leanOptions, replaceProcess } from '../replace-process.ts'

// These commands are whole programs. Each is imported when it runs, because it loads much code.

const allInOne = new URL('../../all-in-one/main.ts', import.meta.url)

export const start: Command = {
  summary: 'runs the whole service in one process (npm start)',
  help: {
    usages: [
      {
        syntax: 'tollgate start',
        text:
          'Runs core, gateway and sidecar in this process. Settings come from the environment; `tollgate config` ' +
          'lists them.',
      },
    ],
    examples: ['./tollgate start', 'PLATFORM_PORT=9080 ./tollgate start'],
  },
  run: () => replaceProcess({ file: allInOne, nodeOptions: leanOptions }),
}

/** A separate process of the service. It reports in its log, and ends by a signal. */
function processCommand(
  name: string,
  { text, example }: { text: string; example: string },
  run: () => Promise<unknown>,
): Command {
  return {
    summary: `runs ${name} in a process of its own`,
    help: { usages: [{ syntax: `tollgate ${name}`, text }], examples: [example] },
    run: async (argv) => {
      if (argv.length > 0) throw new UsageError(`${name} takes its settings from the environment`)
      await run()
      await once(process, 'exit')
      return 0
    },
  }
}

export const core = processCommand(
  'core',
  {
    text:
      'Runs core: gRPC on CORE_PORT, metrics and health on CORE_ADMIN_PORT. It needs DATABASE_URL, KEY_ENCRYPTION_KEY, ' +
      'SECRET_PEPPERS, PUBLIC_URL and the tokens of its callers, and REDIS_URL where several processes run. Any number may run.',
    example: 'set -a; . ./tollgate.env; set +a; ./tollgate core',
  },
  () => import('../../../core/main.ts'),
)

export const gateway = processCommand(
  'gateway',
  {
    text:
      'Runs the gateway: REST, OpenID Connect and pages on PLATFORM_PORT, the builder API on BUILDER_PORT, metrics and health ' +
      'on GATEWAY_ADMIN_PORT. It needs CORE_TARGET, CORE_TOKEN_GATEWAY and PUBLIC_URL. Any number may run.',
    example: 'set -a; . ./tollgate.env; set +a; ./tollgate gateway',
  },
  () => import('../../../gateway/main.ts'),
)

export const sidecar = processCommand(
  'sidecar',
  {
    text:
      'Runs a sidecar: decisions for signers on SIDECAR_PORT, metrics and health on SIDECAR_ADMIN_PORT. It needs ' +
      'CORE_TARGET, CORE_TOKEN_SIDECAR, WEBHOOK_SECRET and a SPOOL_DIR of its own.',
    example: 'WEBHOOK_SECRET=$SIDECAR_SECRET SPOOL_DIR=./spool ./tollgate sidecar',
  },
  () => import('../../../sidecar/main.ts'),
)

export const demo: Command = {
  summary: 'plays the main flow against a running service (npm run demo)',
  help: {
    usages: [
      {
        syntax: 'tollgate demo [--pause MS]',
        text:
          'Plays the main flow against the all-in-one service of this folder. It creates a user; a signer double, ' +
          'which uses the real protocol, requests a decision before each payment; the Starter allowance is used up; ' +
          'the next call is refused; a credit allows more calls. At the end it compares usage, balance and tickets ' +
          'to the last digit.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [['--pause MS', 'Milliseconds between two payments; 120 by default.']],
      },
    ],
    examples: ['./tollgate demo', './tollgate demo --pause 0'],
  },
  run: async (argv) => (await import('../../demo/demo.ts')).runDemo(argv),
}

export const signerDouble: Command = {
  summary: 'plays a remote signer: requests decisions, signs, emits events',
  help: signerDoubleHelp,
  run: async (argv) => (await import('../../signer-double/cli.ts')).runSignerDouble([...argv]),
}
