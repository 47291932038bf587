import { maxBatch } from '../../../core/metering/ingest/ingest.ts'
import { wireCore } from '../core.ts'
import { createFeed } from './feed.ts'
import { answerQuestions } from '../helper.ts'
import { createTopic } from './tickets.ts'

/**
 * Runs the collector in a separate process, so that its garbage does not affect later measurements.
 * Arguments: database, client id, events for one user.
 */
const [url = '', clientId = '', forOne = '0'] = process.argv.slice(2)

const core = wireCore(url)
const feed = createFeed()
const metering = core.createCollecting(feed.source)
await metering.start()
// One event in 1,001 belongs to the other user.
const topic = createTopic({ clientId, pick: (n) => (n % 1001 === 0 ? 1 : 0) })

answerQuestions({}, async () => {
  const total = (Number(forOne) / 1000) * 1001
  const started = performance.now()
  await feed.take(topic.batches(total, maxBatch), total)
  const seconds = (performance.now() - started) / 1000
  await metering.stop()
  await core.stop()
  return { seconds }
})
