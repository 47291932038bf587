import { createRecompute } from '../../../core/billing/invoices/recompute.ts'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import { readFile } from 'node:fs/promises'
import { createReplay } from '../../../core/balances/ledger/replay.ts'
import { createVerify } from '../../../core/books/verify/verify.ts'
import { createCuts } from '../../../core/billing/cuts.ts'
import { createPool, tx } from '../../../core/lib/sql.ts'
import { hashTickets } from '../../../core/metering/batch/tickets-hash.ts'
import { systemNow } from '../../../core/lib/time.ts'
import { toPrices } from '../../../core/metering/batch/tariff.ts'
import { planReads } from '../../../core/plans/offers/reads.ts'
import { priceReads } from '../../../core/plans/prices/chain.ts'
import { answerQuestions, cpuMs } from '../helper.ts'

/**
 * Runs core's part of `tollgate verify` in a separate process, to measure its memory separately.
 * Arguments: database, client id.
 */
const [url = '', clientId = ''] = process.argv.slice(2)

const pageSize = 4_000
// The tables that verify compares, per app.
const tables = [
  'tickets',
  'ledger_entries',
  'usage_hourly',
  'ticket_sessions',
  'balances',
  'grants',
]
const pool = createPool({ url, max: 4, name: 'tollgate-bench', statementTimeoutMs: 0 })
const { list: listCuts } = createCuts({ pool, now: systemNow })
const sales = { readRates: planReads.readRates, listCuts, toPrices }
const verification = createVerify({
  pool,
  prices: priceReads,
  recomputeInvoices: createRecompute(createLedger()),
  createReplay,
  hashTickets,
  listMoves: async () => [],
  sales,
})

async function verify(): Promise<number> {
  let differences = 0
  await verification.verify({
    clientId,
    signal: new AbortController().signal,
    listener: {
      progress: () => undefined,
      difference: () => undefined,
      done: (of) => void (differences += of.differences),
    },
  })
  return differences
}

/** Reads all rows that verify needs, in pages and once each, without using them. */
async function read(): Promise<number> {
  let rows = 0
  await tx(pool, async (db) => {
    const from = tables.map(
      (table) =>
        `select * from ${table} where app_id = (select app_id from clients where client_id = '${clientId}' and kind = 'public')`,
    )
    for (const query of [...from, 'select * from envelopes']) {
      await db.query(`declare bench no scroll cursor for ${query}`)
      for (;;) {
        const page = await db.query(`fetch ${pageSize} from bench`)
        rows += page.rows.length
        if (page.rows.length < pageSize) break
      }
      await db.query('close bench')
    }
  })
  return rows
}

/** Returns the maximum resident size of this process, as counted by the kernel. */
async function highWaterMiB(): Promise<number> {
  const [, kib = 'NaN'] = /VmHWM:\s+(\d+)/.exec(await readFile('/proc/self/status', 'utf8')) ?? []
  return Number(kib) / 1024
}

answerQuestions({ mib: await highWaterMiB() }, async (question) => {
  const isVerify = JSON.stringify(question) === '{"do":"verify"}'
  const [started, before] = [performance.now(), cpuMs()]
  const result = await (isVerify ? verify() : read())
  const ms = performance.now() - started
  return { ms, cpuMs: cpuMs() - before, result, mib: await highWaterMiB() }
})
