import { fail, messagesOf, onStopSignal } from '../../core/lib/process.ts'
import { startService } from './service.ts'
import { welcome } from './welcome.ts'

/** `npm start`: the whole service in one process, on whatever real parts the environment names. */
const service = await startService(process.env).catch((error: unknown) => fail(messagesOf(error)))
process.stdout.write(welcome(service))
onStopSignal(async () => {
  process.stdout.write('\nStopping: running requests are answered first.\n')
  await service.stop()
})
