import { describe, expect, it } from 'vitest'
import { createSignedValues } from '../../../gateway/auth/signed-values.ts'
import { asRecord, publicUrl, serviceToken } from '../support.ts'
import { clock, harness, limited, stopAfterEach } from './support.ts'

stopAfterEach()

describe('rate limit', () => {
  it('applies to guesses at an account, per address and over all of them', async () => {
    await limited({ failuresPerClient: 2, failuresPerAddress: 3 }, { trustedProxyHops: 1 })
    harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
    const page = `${harness.gateway.platformUrl}/login`
    const form = (await fetch(page)).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const logIn = async (address: string, email = 'ada@example.com') =>
      (
        await fetch(page, {
          method: 'POST',
          body: new URLSearchParams({
            email,
            password: 'wrong',
            csrf_token: form.split('=')[1] ?? '',
          }),
          headers: { cookie: form, origin: publicUrl, 'x-forwarded-for': address },
        })
      ).status
    expect([
      await logIn('203.0.113.1'),
      await logIn('203.0.113.1'),
      await logIn('203.0.113.1', ' Ada@example.com'),
    ]).toEqual([401, 401, 429])
    expect([
      await logIn('203.0.113.2'),
      await logIn('203.0.113.3'),
      await logIn('203.0.113.4', 'ADA@EXAMPLE.COM'),
    ]).toEqual([401, 429, 429])
    expect(await logIn('203.0.113.3', 'bob@example.com')).toBe(401)
  })

  it('applies to requests for a mail with a link, per address and account', async () => {
    const edge = { trustedProxyHops: 1 }
    await limited({ loginPerAddress: 8, failuresPerClient: 2, failuresPerAddress: 3 }, edge)
    harness.core.answer('getMailDelivery', { delivery: 'smtp' })
    const page = `${harness.gateway.platformUrl}/forgot-password`
    const form = (await fetch(page)).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const forget = async (address: string, email: string) =>
      (
        await fetch(page, {
          method: 'POST',
          body: new URLSearchParams({ email, csrf_token: form.split('=')[1] ?? '' }),
          headers: { cookie: form, origin: publicUrl, 'x-forwarded-for': address },
        })
      ).status
    const statuses: number[] = []
    for (const email of ['ada@example.com', ' Ada@example.com', 'ADA@example.com'])
      statuses.push(await forget('203.0.113.1', email))
    expect(statuses).toEqual([200, 200, 429])
    expect(await forget('203.0.113.2', 'ada@example.com')).toBe(200)
    expect(await forget('203.0.113.3', 'ada@example.com')).toBe(429)
    for (let count = 3; count < 8; count++)
      expect(await forget('203.0.113.1', `user-${count}@example.com`)).toBe(200)
    expect(await forget('203.0.113.1', 'last@example.com')).toBe(429)
    expect(harness.core.names().filter((name) => name === 'requestPasswordReset')).toHaveLength(8)
  })

  it('applies to requests for a mail that creates an account', async () => {
    const edge = { trustedProxyHops: 1 }
    await limited({ loginPerAddress: 4, failuresPerClient: 2, failuresPerAddress: 3 }, edge)
    harness.core.answer('getMailDelivery', { delivery: 'smtp' })
    harness.core.answer('getSignUp', { mode: 'address' })
    const page = `${harness.gateway.platformUrl}/sign-up`
    const form = (await fetch(page)).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const signUp = async (email: string) =>
      (
        await fetch(page, {
          method: 'POST',
          body: new URLSearchParams({ email, csrf_token: form.split('=')[1] ?? '' }),
          headers: { cookie: form, origin: publicUrl, 'x-forwarded-for': '203.0.113.1' },
        })
      ).status
    const statuses: number[] = []
    for (const email of ['ada@example.com', 'ADA@example.com', 'ada@example.com', 'b@example.com'])
      statuses.push(await signUp(email))
    expect(statuses).toEqual([200, 200, 429, 200])
    expect(await signUp('c@example.com')).toBe(429)
    expect(harness.core.names().filter((name) => name === 'requestSignUp')).toHaveLength(3)
  })

  describe('logins to one account', () => {
    const page = () => `${harness.gateway.platformUrl}/login`
    const formCookie = async () =>
      (await fetch(page())).headers.getSetCookie()[0]?.split(';')[0] ?? ''
    const send = (form: string, more: { address?: string; email?: string; cookie?: string } = {}) =>
      fetch(page(), {
        method: 'POST',
        redirect: 'manual',
        body: new URLSearchParams({
          email: more.email ?? 'ada@example.com',
          password: 'x',
          csrf_token: form.split('=')[1] ?? '',
        }),
        headers: {
          cookie: [form, more.cookie ?? ''].filter(Boolean).join('; '),
          origin: publicUrl,
          'x-forwarded-for': more.address ?? '203.0.113.1',
        },
      })
    const deviceCookie = (answer: Response) =>
      answer.headers
        .getSetCookie()
        .find((line) => line.startsWith('__Host-tollgate_device='))
        ?.split(';')[0] ?? ''
    const noOther = { loginPerAddress: 100_000, failuresPerAddress: 100_000 }

    it('counts parallel attempts before they are checked', async () => {
      await limited({ ...noOther, failuresPerClient: 20 }, { trustedProxyHops: 1 })
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const form = await formCookie()
      const answers = await Promise.all(Array.from({ length: 200 }, () => send(form)))
      const statuses = Map.groupBy(answers, ({ status }) => status)
      expect([statuses.get(401)?.length, statuses.get(429)?.length]).toEqual([20, 180])
      expect(harness.core.names().filter((name) => name === 'logIn')).toHaveLength(20)
    })

    it('makes strangers wait increasingly long, but not forever', async () => {
      await limited({ ...noOther, failuresPerClient: 2 }, { trustedProxyHops: 1 })
      clock.at = Date.parse('2026-03-10T12:00:00.000Z')
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const form = await formCookie()
      const admitted: number[] = []
      const waits: number[] = []
      for (let second = 0; second < 60; second++) {
        const answer = await send(form)
        if (answer.status === 401) admitted.push(second)
        waits.push(Number(answer.headers.get('retry-after')))
        clock.at += 1_000
      }
      expect(Math.max(...waits)).toBe(29)
      expect(admitted).toEqual([0, 1, 2, 4, 5, 10, 20, 30])
      expect((await send(form)).status).toBe(401)
    })

    it('admits a person from a browser that has logged in before', async () => {
      await limited(
        { loginPerAddress: 12, failuresPerAddress: 6, failuresPerClient: 3 },
        { trustedProxyHops: 1 },
      )
      const form = await formCookie()
      const cookie = deviceCookie(await send(form, { email: 'ADA@example.com' }))
      expect(cookie).not.toBe('')
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      for (const address of ['203.0.113.1', '203.0.113.2', '203.0.113.3'])
        for (let i = 0; i < 12; i++) await send(form, { address })
      expect((await send(form)).status).toBe(429)
      expect((await send(form, { address: '203.0.113.9' })).status).toBe(429)
      harness.core.reset()
      expect((await send(form, { cookie })).status).toBe(303)
      expect((await send(form, { cookie, email: 'bob@example.com' })).status).toBe(429)
      expect((await send(form, { cookie: `${cookie}x` })).status).toBe(429)
    })

    it('lets all known browsers of an account share the same places', async () => {
      await limited(noOther, { trustedProxyHops: 1 })
      const form = await formCookie()
      const logInAs = async (email: string, cookie = '') => {
        const answer = await send(form, { email, cookie })
        const request = asRecord(harness.core.calls.findLast(({ rpc }) => rpc === 'logIn')?.request)
        const { source, isKnownDevice } = request
        return { cookie: deviceCookie(answer), place: { source, isKnownDevice } }
      }
      const emails = ['ada@example.com', 'ADA@example.com', 'bob@example.com']
      const stranger = (await logInAs('ada@example.com')).place
      const places: { source: unknown; isKnownDevice: unknown }[] = []
      for (const email of emails) {
        const { cookie } = await logInAs(email)
        places.push((await logInAs(email, cookie)).place)
      }
      expect(stranger.isKnownDevice).toBe(false)
      expect(places.map(({ isKnownDevice }) => isKnownDevice)).toEqual([true, true, true])
      const [first, second, ofBob] = places.map(({ source }) => source)
      expect([second === first, ofBob === first]).toEqual([true, false])
    })

    it('rejects a cookie that is forged, of another account or for another purpose', async () => {
      await limited({ ...noOther, failuresPerClient: 2 }, { trustedProxyHops: 1 })
      const form = await formCookie()
      const [name = '', value = ''] = deviceCookie(await send(form)).split('=')
      const [encoded = '', expiresAt = '', mac = ''] = value.split('.')
      const inner = Buffer.from(encoded, 'base64url').toString()
      const bobs = deviceCookie(await send(form, { email: 'bob@example.com' })).split('=')[1] ?? ''
      const [bobsText = '', , bobsMac = ''] = bobs.split('.')
      const secret = { secrets: [serviceToken], purpose: 'login state' }
      const forged = [
        `${encoded}.${Number(expiresAt) + 1}.${mac}`,
        `${encoded}.${expiresAt}`,
        `${encoded}.${expiresAt}.`,
        `${encoded}.${expiresAt}.${mac}.${mac}`,
        `${encoded}.${expiresAt}.${bobsMac}`,
        `${bobsText}.${expiresAt}.${mac}`,
        bobs,
        createSignedValues(secret).sign(inner, 3_600),
        createSignedValues({ ...secret, secrets: ['x'.repeat(32)], purpose: 'device cookie' }).sign(
          inner,
          3_600,
        ),
      ]
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      while ((await send(form)).status !== 429);
      for (const each of forged)
        expect([each, (await send(form, { cookie: `${name}=${each}` })).status]).toEqual([
          each,
          429,
        ])
      // One of two cookies with the same name may be planted.
      const twice = `${name}=${value}; ${name}=${value}`
      expect((await send(form, { cookie: twice })).status).toBe(429)
      expect((await send(form, { cookie: `${name}=${value}` })).status).toBe(401)
    })

    it('treats a browser with an expired cookie as a stranger', async () => {
      await limited({ ...noOther, failuresPerClient: 1 }, { trustedProxyHops: 1 })
      clock.at = Date.parse('2026-03-10T12:00:00.000Z')
      const form = await formCookie()
      const cookie = deviceCookie(await send(form))
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      clock.at += 180 * 86_400_000
      expect([(await send(form)).status, (await send(form, { cookie })).status]).toEqual([401, 429])
    })

    it('also limits a browser that has logged in before', async () => {
      await limited({ ...noOther, failuresPerClient: 3 }, { trustedProxyHops: 1 })
      const form = await formCookie()
      const cookie = deviceCookie(await send(form))
      harness.core.refuse('logIn', 'CREDENTIAL_INVALID')
      const statuses: number[] = []
      for (let i = 0; i < 5; i++) statuses.push((await send(form, { cookie })).status)
      expect(statuses).toEqual([401, 401, 401, 429, 429])
    })
  })
})
