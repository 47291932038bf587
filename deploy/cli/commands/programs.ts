import { once } from 'node:events'
import type { Command } from '../command.ts'

/** Programs of their own; loaded when they are wanted, because they bring much with them. */
export const start: Command = {
  summary: 'runs the whole service in one process (npm start)',
  help: `tollgate start
  Runs core, gateway and sidecar in this process. Settings come from the environment: see npx tollgate config.
`,
  run: async () => {
    await import('../../all-in-one/main.ts')
    // It ends by a signal.
    await once(process, 'exit')
    return 0
  },
}

export const demo: Command = {
  summary: 'plays the whole story against a running service (npm run demo)',
  help: '',
  ownHelp: true,
  run: async (argv) => (await import('../../demo/demo.ts')).runDemo(argv),
}

export const signerDouble: Command = {
  summary: 'a remote signer to play with: asks the sidecar, signs, emits events',
  help: '',
  ownHelp: true,
  run: async (argv) => (await import('../../signer-double/cli.ts')).runSignerDouble([...argv]),
}
